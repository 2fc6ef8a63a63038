// The pulse: items done in each of the last sixty seconds, from what the cores count.
"use strict";
(() => {
  const canvas = document.getElementById("pulse"), now = document.getElementById("pulse-now"), kept = 60;
  if (!canvas) return;
  const pen = canvas.getContext("2d"), bars = [];
  let before = null, at = 0;

  const probe = document.createElement("span");
  const painted = (name) => {
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };

  const draw = () => {
    const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = 64;
    canvas.width = width * scale;
    canvas.height = height * scale;
    pen.scale(scale, scale);
    const most = Math.max(1, ...bars), step = width / kept;
    const accent = painted("--accent"), line = painted("--line");
    for (let index = 0; index < kept; index++) {
      const value = bars[bars.length - kept + index] || 0;
      const high = value ? Math.max(3, (height - 6) * value / most) : 2;
      pen.fillStyle = value ? accent : line;
      pen.globalAlpha = value ? 0.35 + 0.65 * index / kept : 1;
      pen.fillRect(index * step + 1, height - high, Math.max(1, step - 2), high);
    }
    now.textContent = bars.length ? `${bars[bars.length - 1].toLocaleString("en")} in the last second` : "–";
  };

  document.addEventListener("values", (event) => {
    const pulse = event.detail.pulse;
    if (!pulse) return;
    const time = Date.parse(pulse.at);
    if (before) {
      let done = 0;
      // A core whose process is new counts from zero again.
      for (const [core, items] of Object.entries(pulse.cores)) {
        done += items >= (before[core] ?? items) ? items - (before[core] ?? items) : items;
      }
      const seconds = Math.min(kept, Math.max(1, Math.round((time - at) / 1000)));
      for (let second = 1; second < seconds; second++) bars.push(Math.round(done / seconds));
      bars.push(seconds > 1 ? Math.round(done / seconds) : done);
      while (bars.length > kept) bars.shift();
    }
    before = pulse.cores;
    at = time;
    draw();
  });
  // What was done before the page was opened is in the history, a point for ten seconds.
  const begin = async () => {
    const response = await fetch("history?minutes=2").catch(() => null);
    // A session that has ended leads to the page to sign in.
    if (!response?.ok || response.redirected) return;
    const history = await response.json(), count = kept - bars.length, end = Date.now() / 1000 - bars.length;
    const earlier = Array.from({ length: count }, (_, index) => {
      const second = end - count + index, point = history.at.findIndex((at) => at > second && at <= second + 10);
      return Math.round(history.items_s[point] ?? 0);
    });
    bars.unshift(...earlier);
    draw();
  };
  document.addEventListener("themed", draw);
  addEventListener("resize", draw);
  draw();
  begin();
})();
