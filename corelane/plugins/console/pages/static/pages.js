// Pages about work: a word before something is undone, Ctrl + Enter, short addresses, the best stretch of a text in view.
"use strict";
(() => {
  const make = (name, text, attributes = {}) => Object.assign(document.createElement(name), { textContent: text }, attributes);

  // A button with data-ask asks before its form is sent.
  const sure = (words, label, isDanger) => new Promise((resolve) => {
    const dialog = make("dialog", "", { className: "sure" }), row = make("div", "", { className: "row" });
    const yes = make("button", label, { type: "button", className: isDanger ? "danger" : "primary" });
    const no = make("button", "Leave it", { type: "button" });
    yes.addEventListener("click", () => dialog.close("yes"));
    no.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    row.append(yes, no);
    dialog.append(make("p", words), row);
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
  document.addEventListener("submit", async (event) => {
    const button = event.submitter;
    if (!button?.dataset.ask || button.dataset.sure) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!await sure(button.dataset.ask, button.textContent, button.classList.contains("danger"))) return;
    button.dataset.sure = "yes";
    event.target.requestSubmit(button);
    delete button.dataset.sure;
  }, true);

  // Fields left empty stay out of the address, so that it is short enough to share.
  document.addEventListener("submit", (event) => {
    if (!("dropEmpty" in event.target.dataset)) return;
    const empty = [...event.target.elements].filter((field) => field.name && !field.value);
    for (const field of empty) field.disabled = true;
    setTimeout(() => { for (const field of empty) field.disabled = false; });
  });

  // The form is that of the model's task: another model of the same task leaves what was typed as it is.
  document.addEventListener("change", (event) => {
    const chosen = event.target.closest?.("select[data-task]");
    if (!chosen || chosen.selectedOptions[0].dataset.task === chosen.dataset.task) return;
    location.assign(`ask?model=${encodeURIComponent(chosen.value)}`);
  });

  document.addEventListener("keydown", (event) => {
    const form = event.target.closest?.("[data-quick-send]");
    if (form && event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });

  // In a long text the first mark is in view.
  const reveal = () => {
    for (const passage of document.querySelectorAll(".passage:not([data-shown])")) {
      passage.dataset.shown = "";
      const mark = passage.querySelector("mark");
      if (mark) passage.scrollTop = mark.offsetTop - passage.offsetTop - passage.clientHeight / 3;
    }
  };
  document.addEventListener("htmx:after:swap", reveal);
  reveal();
})();
