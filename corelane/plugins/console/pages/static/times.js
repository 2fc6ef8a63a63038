// Writes times: "3 min ago" with the exact time as its title, or exact ones; in UTC or local time, as chosen.
"use strict";
(() => {
  const isLocal = () => localStorage.getItem("zone") === "local";
  const pad = (value, width = 2) => String(value).padStart(width, "0");

  const exact = (date) => {
    const [y, m, d, h, min, s] = isLocal()
      ? [date.getFullYear(), date.getMonth(), date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds()]
      : [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate(), date.getUTCHours(), date.getUTCMinutes(),
         date.getUTCSeconds()];
    return `${y}-${pad(m + 1)}-${pad(d)} ${pad(h)}:${pad(min)}:${pad(s)}`;
  };

  const relative = (date) => {
    const seconds = Math.round((Date.now() - date) / 1000), past = seconds >= 0, size = Math.abs(seconds);
    if (size < 2) return "now";
    const [value, unit] = size < 60 ? [size, "s"] : size < 3600 ? [size / 60, "min"]
      : size < 48 * 3600 ? [size / 3600, "h"] : [size / 86400, "d"];
    return past ? `${Math.floor(value)} ${unit} ago` : `in ${Math.round(value)} ${unit}`;
  };

  // A time of today without its date.
  const brief = (date) => {
    const words = exact(date);
    return words.slice(0, 10) === exact(new Date()).slice(0, 10) ? words.slice(11) : words;
  };

  const write = (root = document) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const date = new Date(time.dateTime);
      if (isNaN(date)) continue;
      const words = exact(date) + (isLocal() ? "" : " UTC");
      const text = time.dataset.style === "exact" ? words
        : time.dataset.style === "brief" ? brief(date) + (isLocal() ? "" : " UTC")
        : time.dataset.style === "both" ? `${words} (${relative(date)})` : relative(date);
      if (time.textContent !== text) time.textContent = text;
      if (time.title !== words) time.title = words;
    }
  };

  const label = () => { document.getElementById("zone").textContent = isLocal() ? "Local" : "UTC"; };
  document.getElementById("zone").addEventListener("click", () => {
    localStorage.setItem("zone", isLocal() ? "utc" : "local");
    label();
    write();
    document.dispatchEvent(new Event("zoned"));
  });
  label();
  write();
  setInterval(() => { if (!document.hidden) write(); }, 5000);
  document.addEventListener("htmx:after:swap", () => write());
  document.addEventListener("parts", () => write());
  window.corelane = Object.assign(window.corelane || {}, { exact, isLocal });
})();
