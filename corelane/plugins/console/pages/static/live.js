// The page's one stream: swaps parts that changed and hands values on. Closed while the page is hidden.
"use strict";
(() => {
  const address = document.body.dataset.stream, sign = document.getElementById("live");
  if (!address) return;
  let source = null, waiting = new Map(), why = "";

  // What the page shows may be old while the service is away, and looks so.
  const show = (state, words, why = "") => {
    sign.hidden = false;
    sign.className = `live is-${state}`;
    sign.textContent = words;
    sign.title = why;
    document.body.classList.toggle("is-old", state === "off");
  };

  // A part in which somebody types, selects, or has opened something stays as it is until they are done.
  const isHeld = (part) => {
    const selection = document.getSelection();
    return (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"))
      || (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
  };

  const swap = (name, html) => {
    const part = document.getElementById(name);
    if (!part) return;
    if (isHeld(part)) {
      waiting.set(name, html);
      return;
    }
    waiting.delete(name);
    htmx.swap({ target: part, sourceElement: part, swap: "innerMorph", text: html });
  };

  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.addEventListener("open", () => show("on", "live"));
    source.addEventListener("update", (event) => {
      const update = JSON.parse(event.data), away = update.values?.away;
      why = away ?? why;
      if (away) show("off", "not up to date", away);
      else if (away === "") show("on", "live");
      for (const [name, html] of Object.entries(update.parts || {})) swap(name, html);
      document.dispatchEvent(new CustomEvent("parts"));
      if (update.values) document.dispatchEvent(new CustomEvent("values", { detail: update.values }));
    });
    source.addEventListener("error", () => {
      const isRefused = source.readyState === EventSource.CLOSED;
      // A stream that ends after it said why is to be asked for again later.
      if (isRefused || !why) show("off", isRefused ? "stopped" : "reconnecting");
      if (isRefused) {
        close();
        setTimeout(again, 3000);
      }
    });
  };
  // A stream that was refused: the page itself shows whether the session has ended.
  const again = async () => {
    const response = await fetch(location.href, { redirect: "manual" }).catch(() => null);
    if (response?.type === "opaqueredirect") location.reload();
    else open();
  };
  const close = () => {
    source?.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      show("hidden", "paused");
    } else open();
  });
  document.addEventListener("selectionchange", () => { for (const [name, html] of waiting) swap(name, html); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
})();
