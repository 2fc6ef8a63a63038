// A request that got no reply: it is said where the reply would stand, so that nothing old passes for it.
"use strict";
(() => {
  document.addEventListener("htmx:error", (event) => {
    const place = event.detail.ctx?.target;
    if (!(place instanceof Element)) return;
    const box = document.createElement("div"), words = document.createElement("p");
    box.className = "problem";
    box.setAttribute("role", "alert");
    words.textContent = navigator.onLine
      ? "No reply came: the service could not be reached, or took too long. What was sent may have been done; look before you try again."
      : "This computer is not connected. Try again when it is.";
    box.append(words);
    place.replaceChildren(box);
  });
})();
