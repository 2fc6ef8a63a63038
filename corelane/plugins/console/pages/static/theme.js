// Applies the chosen theme before the page is painted, and switches it: as the system, light, dark.
"use strict";
(() => {
  const root = document.documentElement, order = ["system", "light", "dark"];
  const chosen = () => (order.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system");
  const apply = () => {
    root.dataset.theme = chosen();
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = { system: "◐", light: "☀", dark: "☾" }[chosen()];
      button.setAttribute("aria-label", `Theme: ${chosen()}`);
    }
    document.dispatchEvent(new Event("themed"));
  };
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem("theme", order[(order.indexOf(chosen()) + 1) % order.length]);
      apply();
    });
  });
})();
