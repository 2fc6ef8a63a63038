// The charts of the overview, by uPlot: history from Redis, with marks where something was changed.
"use strict";
(() => {
  const places = [...document.querySelectorAll("[data-chart]")], buttons = [...document.querySelectorAll("[data-minutes]")];
  if (!places.length) return;
  const charts = new Map(), HEIGHT = 160;
  let minutes = 60, history = null;

  const color = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };

  const words = (seconds) => seconds == null ? "–" : seconds < 1 ? `${Math.round(seconds * 1000)} ms`
    : seconds < 120 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`
    : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  const count = (value) => value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
  const share = (value) => value == null ? "–" : `${Math.round(value * 100)} %`;

  // Steps of an axis of times: no 25 s, and no 1.7 min.
  const STEPS = [...[0.001, 0.01, 0.1, 1].flatMap((step) => [step, 2 * step, 5 * step]),
    10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

  // `least`: without any value an axis has its ends, as rounded steps of nearly nothing would all read 0.
  const KINDS = {
    throughput: { write: count, least: 1, series: [["answered", "items_s", "accent", true], ["failed", "failed_s", "bad"]] },
    latency: { write: words, least: 1e-3, series: [["median", "p50_s", "accent"], ["95 in 100", "p95_s", "info"], ["wait, 95 in 100", "wait_p95_s", "warn"]] },
    backlog: { write: words, least: 1, series: [["work that waits", "backlog_s", "warn", true]] },
    share: { write: share, top: 1, series: [["busy", "busy", "accent", true], ["padding", "padding_ratio", "quiet"]] },
  };
  const MARKS = { deploy: "info", alias: "accent", load: "good", unload: "quiet", core: "bad", calibration: "warn" };

  // The legend shows the last point while the cursor is elsewhere.
  const showLast = (plot) => plot.setLegend({ idx: history.at.length - 1 }, false);

  const drawMarks = ({ ctx, bbox, valToPos }) => {
    ctx.save();
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.lineWidth = devicePixelRatio;
    for (const mark of history.marks) {
      const x = Math.round(valToPos(Date.parse(mark.at) / 1000, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = color(MARKS[mark.kind] || "quiet");
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  // A point between two gaps is on no line: it is drawn as a dot.
  const alone = (plot, index) => plot.data[index].flatMap((value, at, all) =>
    value != null && all[at - 1] == null && all[at + 1] == null ? [at] : []);
  const columns = (kind) => [history.at, ...kind.series.map(([, name]) => history.points.map((point) => point[name]))];

  const make = (place) => {
    const kind = KINDS[place.dataset.chart], grid = { stroke: color("line"), width: 1 };
    const axis = { stroke: color("quiet"), font: "11px system-ui, sans-serif", grid, ticks: { show: false } };
    return new uPlot({
      width: place.clientWidth, height: HEIGHT, padding: [8, 14, 0, 0],
      tzDate: (seconds) => corelane.isLocal() ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      cursor: { y: false, sync: { key: "history" }, points: { size: 6 } },
      scales: {
        x: { range: () => [history.at.at(-1) - minutes * 60, history.at.at(-1)] },
        y: { range: (_, __, most) => [0, kind.top || Math.max(most * 1.08, kind.least) || 1] },
      },
      axes: [
        { ...axis, size: 26, grid: { show: false }, values: (_, times) => times.map((time) => corelane.exact(new Date(time * 1000)).slice(11, 16)) },
        { ...axis, size: 58, incrs: kind.write === words ? STEPS : undefined, values: (_, values) => values.map(kind.write) },
      ],
      series: [
        { label: "", value: (_, time) => time == null ? "" : corelane.exact(new Date(time * 1000)).slice(11) },
        ...kind.series.map(([label, , name, isFilled]) => ({
          label, stroke: color(name), width: 1.6, points: { show: false, size: 4, filter: alone }, spanGaps: false,
          fill: isFilled ? color(name).replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)") : undefined, value: (_, value) => kind.write(value),
        })),
      ],
      legend: { markers: { width: 0, fill: (plot, index) => plot.series[index].stroke() } },
      hooks: { draw: [drawMarks], setCursor: [(plot) => { if (plot.cursor.left < 0) showLast(plot); }] },
    }, columns(kind), place);
  };

  const listMarks = () => {
    document.getElementById("marks").hidden = !history.marks.length;
    document.querySelector("#marks ul").replaceChildren(...history.marks.toReversed().map((mark) => {
      const item = document.createElement("li");
      item.textContent = `${corelane.exact(new Date(mark.at))} ${mark.kind}: ${mark.text}`;
      return item;
    }));
  };

  const paint = () => {
    const isEmpty = history.at.length === 0;
    document.getElementById("charts").hidden = isEmpty;
    document.getElementById("no-history").hidden = !isEmpty;
    listMarks();
    for (const place of isEmpty ? [] : places) {
      const chart = charts.get(place);
      if (chart) chart.setData(columns(KINDS[place.dataset.chart]));
      else charts.set(place, make(place));
      if (!(charts.get(place).cursor.left >= 0)) showLast(charts.get(place));
    }
  };
  const redraw = () => {
    for (const chart of charts.values()) chart.destroy();
    charts.clear();
    if (history) paint();
  };

  const load = async () => {
    if (document.hidden) return;
    // A failed round is passed over: the sign in the header tells that the service is away.
    const response = await fetch(`history?minutes=${minutes}`).catch(() => null);
    if (!response?.ok || response.redirected) return;
    history = await response.json();
    history.at = history.points.map((point) => Date.parse(point.at) / 1000);
    paint();
  };

  for (const button of buttons) {
    button.addEventListener("click", () => {
      minutes = Number(button.dataset.minutes);
      for (const each of buttons) each.ariaPressed = String(each === button);
      load();
    });
  }
  new ResizeObserver(() => {
    for (const [place, chart] of charts) chart.setSize({ width: place.clientWidth, height: HEIGHT });
  }).observe(document.getElementById("charts"));
  document.addEventListener("themed", redraw);
  document.addEventListener("zoned", redraw);
  document.addEventListener("visibilitychange", load);
  setInterval(load, 10_000);
  load();
})();
