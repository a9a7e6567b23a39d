// Small pieces that all views are made of.

import { html } from "./vendor/preact.js";

/** Times and sizes stay in one line. */
function short(cell) {
  return typeof cell === "string" && cell.length < 25 ? "short" : undefined;
}

/** A table; rows are lists of cells. Texts stay texts. */
export function Table({ caption, head, rows, empty }) {
  if (!rows.length) return html`<p class="quiet">${empty || "Nothing yet."}</p>`;
  return html`<div class="wide" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="unseen">${caption}</caption>
      <thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.key}>${row.cells.map((cell) => html`<td class=${short(cell)}>${cell}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

/** Named values side by side. */
export function Facts({ facts, label }) {
  return html`<dl class="facts" aria-label=${label}>
    ${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** The state of a job, an operator or a checkpoint. */
export function Badge({ status }) {
  return html`<span class=${`badge ${String(status).toLowerCase().replace(/[^a-z]/g, "-")}`}>${status}</span>`;
}

/** What went wrong, for eyes and for screen readers. */
export function Problem({ error }) {
  return error ? html`<p class="problem" role="alert">${error.message}</p>` : null;
}

export function Section({ title, children, id }) {
  return html`<section aria-labelledby=${id}><h2 id=${id}>${title}</h2>${children}</section>`;
}

/** A share of something as a bar with its number. */
export function Meter({ value, label }) {
  if (value === null || value === undefined) return "–";
  const percent = Math.round(value * 100);
  const level = percent >= 90 ? "high" : percent >= 60 ? "middle" : "low";
  return html`<span class="meter">
    <meter class=${level} min="0" max="100" value=${Math.min(percent, 100)} aria-label=${label}></meter> ${percent} %
  </span>`;
}

/** A link to another server of this user; whatever is no web address leads nowhere. */
export function away(link) {
  return /^https?:\/\//.test(link) ? link : "#/";
}
