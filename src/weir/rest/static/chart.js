// A line chart over time by uPlot, with marks for what happened.

import { html, useEffect, useRef } from "./vendor/preact.js";
import { useDark } from "./hooks.js";

const HEIGHT = 170;
const LINES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
}

/** Draw a dashed line for each event. */
function marks(events) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = 1;
    ctx.setLineDash([4, 4]);
    for (const event of events.current) {
      const at = plot.valToPos(event.at / 1000, "x", true);
      if (at >= bbox.left && at <= bbox.left + bbox.width) {
        ctx.strokeStyle = colour(event.kind === "savepoint" || event.kind === "rescale" ? "--good" : "--bad");
        ctx.beginPath();
        ctx.moveTo(at, bbox.top);
        ctx.lineTo(at, bbox.top + bbox.height);
        ctx.stroke();
      }
    }
    ctx.restore();
  };
}

function options(title, series, format, events, width) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
  return {
    width,
    height: HEIGHT,
    cursor: { sync: { key: "weir" } },
    scales: { y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [axis, { ...axis, size: 70, values: (plot, values) => values.map(format) }],
    series: [
      {},
      ...series.map((each, i) => ({
        label: each.label,
        stroke: colour(LINES[i % LINES.length]),
        width: 1.5,
        points: { show: false },
        spanGaps: true,
        value: (plot, value) => (value === null || value === undefined ? "–" : format(value)),
      })),
    ],
    hooks: { draw: [marks(events)] },
  };
}

/** Lines over time; `at` are milliseconds, series have a label and a value for each of them. */
export function Chart({ title, at, series, format, events = [] }) {
  const holder = useRef(null);
  const plot = useRef(null);
  const known = useRef(events);
  const dark = useDark();
  known.current = events;
  const labels = series.map((each) => each.label).join("\n");
  useEffect(() => {
    const element = holder.current;
    const made = new window.uPlot(
      options(title, series, format, known, Math.max(element.clientWidth, 120)),
      [at.map((ms) => ms / 1000), ...series.map((each) => each.values)],
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 120), height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [labels, dark]);
  useEffect(() => {
    if (plot.current) plot.current.setData([at.map((ms) => ms / 1000), ...series.map((each) => each.values)]);
  });
  const last = series.map((each) => {
    const value = each.values[each.values.length - 1];
    return `${each.label} ${value === null || value === undefined ? "unknown" : format(value)}`;
  });
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div role="img" aria-label=${`${title}: now ${last.join(", ") || "nothing yet"}`} ref=${holder}></div>
  </figure>`;
}
