// The graph of a job: operators as boxes, exchanges as lines, laid out by dagre.

import { html, useMemo } from "./vendor/preact.js";
import { layout } from "./layout.js";
import { count, duration, lag, rate, share, skew, stateNames, watermark } from "./format.js";

const WIDTH = 220;
const HEIGHT = 124;
const LETTERS = 28;

function short(text, letters = LETTERS) {
  const characters = Array.from(text);
  return characters.length > letters ? `${characters.slice(0, letters - 1).join("")}…` : text;
}

const DAY = 24 * 60 * 60 * 1000;

/** How far event time is: a time of day and how far it is behind, a date, or a plain number. */
function time(vertex, now) {
  if (vertex.watermark === null || vertex.watermark === undefined) return "";
  const behind = lag(vertex.watermark, now);
  const at = watermark(vertex.watermark);
  if (behind === null || Math.abs(behind) >= DAY) return `watermark ${at}`;
  return `watermark ${at.slice(11)} (${behind < 0 ? "+" : "−"}${duration(Math.abs(behind))})`;
}

/** Lines of a box: what it is, then how it does. */
function lines(vertex, rates, now) {
  const where = vertex.level === 0 ? "in Spark" : `level ${vertex.level}`;
  const counts = vertex.subtasks.map((each) => each["read-records"]);
  const uneven = skew(counts);
  const found = rates.get(vertex.id);
  const flow = `in ${rate(found && found.in)} · out ${rate(found && found.out)}`;
  if (vertex.level === 0) return [`${where} · ×${vertex.parallelism}`, vertex.uid ? `uid ${vertex.uid}` : "", "records are counted by slots", time(vertex, now)].filter(Boolean);
  return [
    `${where} · ×${vertex.parallelism}${vertex.uid ? ` · ${vertex.uid}` : ""}`,
    flow,
    `${count(vertex.metrics["read-records"])} records${uneven === null ? "" : ` · skew ${uneven.toFixed(1)}`}`,
    time(vertex, now),
    vertex.states.length ? `state: ${stateNames(vertex.states)}` : "",
  ].filter(Boolean);
}

function Edge({ edge }) {
  const points = edge.points.map((p) => `${p.x},${p.y}`).join(" ");
  const middle = edge.points[Math.floor(edge.points.length / 2)];
  return html`<g class="edge">
    <polyline points=${points} marker-end="url(#arrow)" />
    <text x=${middle.x} y=${middle.y - 6} text-anchor="middle">${edge.how}</text>
  </g>`;
}

function Box({ node, vertex, rates, chosen, busy, choose, now }) {
  const told = lines(vertex, rates, now);
  const [left, top] = [node.x - WIDTH / 2, node.y - HEIGHT / 2];
  const label = `${vertex.name}: ${vertex.status}, ${told.join(", ")}${busy === null ? "" : `, busy ${share(busy)}`}`;
  const pressed = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(vertex.id);
    }
  };
  const heat = busy === null ? "idle" : busy >= 0.9 ? "high" : busy >= 0.6 ? "middle" : "low";
  return html`<g class=${`box ${heat} ${chosen ? "chosen" : ""}`} transform=${`translate(${left} ${top})`}
      role="button" tabindex="0" aria-pressed=${chosen} aria-label=${label}
      data-vertex=${vertex.id} onClick=${() => choose(vertex.id)} onKeyDown=${pressed}>
    <title>${label}</title>
    <rect width=${WIDTH} height=${HEIGHT} rx="8" />
    <text class="name" x="12" y="22">${short(vertex.name, 26)}</text>
    ${told.map((line, i) => html`<text x="12" y=${40 + 16 * i}>${short(line, 34)}</text>`)}
  </g>`;
}

/** The graph; `rates` are by operator, `busy` is the share of time of the busiest slot. */
export function Graph({ job, rates, busy, chosen, choose, narrow }) {
  const shape = JSON.stringify(job.plan.nodes.map((n) => [n.id, n.inputs.map((i) => [i.id, i.ship_strategy])]));
  const placed = useMemo(() => layout(JSON.parse(shape), WIDTH, HEIGHT, narrow ? "TB" : "LR"), [shape, narrow]);
  const vertices = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  return html`<div class="graph" tabindex="0" role="region" aria-label="Graph of the job">
    <svg width=${placed.width} height=${placed.height} viewBox=${`0 0 ${placed.width} ${placed.height}`} role="group" aria-label="Operators">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
        <path d="M0 0 8 4 0 8z" /></marker></defs>
      ${placed.edges.map((edge) => html`<${Edge} key=${edge.key} edge=${edge} />`)}
      ${placed.nodes.filter((node) => vertices.has(node.id)).map((node) => html`<${Box} key=${node.id} node=${node}
        vertex=${vertices.get(node.id)} rates=${rates} now=${job.now} chosen=${chosen === node.id} choose=${choose}
        busy=${vertices.get(node.id).level === 0 ? null : busy} />`)}
    </svg>
  </div>`;
}
