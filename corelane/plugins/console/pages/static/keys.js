// The keyboard: `/` searches, `g` and a letter open a page, `?` lists the keys. Also: buttons that copy.
"use strict";
(() => {
  const dialog = document.getElementById("keys");
  const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;
  let wasG = 0;

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "?") {
      event.preventDefault();
      dialog.showModal();
    } else if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      event.preventDefault();
      if (search) search.focus();
      else location.assign(document.querySelector("nav a[href=jobs]")?.href || ".");
    } else if (event.key === "g") {
      wasG = Date.now();
    } else if (Date.now() - wasG < 1500) {
      wasG = 0;
      document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
    }
  });
  // In the page's own address an anchor would drop the filters, so the link moves the focus itself.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  document.getElementById("help").addEventListener("click", () => dialog.showModal());

  const toast = (text) => {
    const place = document.getElementById("toast");
    place.textContent = text;
    place.classList.add("shown");
    setTimeout(() => place.classList.remove("shown"), 2500);
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      toast("Copied");
    } catch {
      toast("The browser did not let this page copy");
    }
  });
  window.corelane = Object.assign(window.corelane || {}, { toast });
})();
