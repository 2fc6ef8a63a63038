// Writes the share that each slider of an alias stands for.
"use strict";
document.addEventListener("input", (event) => {
  const form = event.target.closest(".set");
  if (!form || event.target.type !== "range") return;
  const sliders = [...form.querySelectorAll("input[type=range]")];
  const whole = sliders.reduce((sum, each) => sum + Number(each.value), 0);
  for (const each of sliders) {
    const share = whole ? (100 * Number(each.value)) / whole : 0;
    each.closest(".share").querySelector("output").textContent = `${Math.round(share)} %`;
  }
});
