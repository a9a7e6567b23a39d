// How large each state was, checkpoint after checkpoint.

import { html } from "./vendor/preact.js";
import { Chart } from "./chart.js";
import { usePoll } from "./hooks.js";
import { bytes, stateName } from "./format.js";

const LINES = 6;

/** A line for each of the largest states; nothing before there are two checkpoints. */
export function StateSizes({ job, events }) {
  const { data } = usePoll(`jobs/${job.jid}/checkpoints/state-sizes`, 5000);
  if (!data || data.at.length < 2 || !data.states.length) return null;
  const most = (series) => Math.max(...series.bytes.map((size) => size || 0));
  const largest = [...data.states].sort((a, b) => most(b) - most(a));
  const left = largest.length - LINES;
  return html`<${Chart} title=${`Size by state, in checkpoints${left > 0 ? `: the ${LINES} largest of ${largest.length}` : ""}`} at=${data.at} format=${bytes} events=${events}
    series=${largest.slice(0, LINES).map((s) => ({ label: stateName(s.name, s.state), values: s.bytes }))} />`;
}
