// How a keyed state is spread over key groups, as a checkpoint has it.

import { html, useState } from "./vendor/preact.js";
import { usePoll } from "./hooks.js";
import { Problem } from "./parts.js";
import { bytes, count } from "./format.js";

/** Bars of key groups: hot ones stand out. */
export function Groups({ base, vertex, name }) {
  const { data, error } = usePoll(`${base}/${vertex}/key-groups?state=${encodeURIComponent(name)}`, null);
  if (!data) return html`<${Problem} error=${error} />`;
  const known = data.groups.filter((g) => g.entries >= 0);
  if (!known.length) return html`<p class="quiet">${data.groups.length ? `${data.groups.length} key groups have entries; how many is inside the files of a database.` : "No key group has entries."}</p>`;
  const most = Math.max(...known.map((g) => g.entries));
  const sum = known.reduce((a, g) => a + g.entries, 0);
  const hot = [...known].sort((a, b) => b.entries - a.entries).slice(0, 3);
  const width = Math.max(1, 768 / data["max-parallelism"]);
  return html`<figure class="groups">
    <figcaption>${name}, ${data.changes ? "changes" : "entries"} by key group: ${count(sum)} in ${known.length} of ${data["max-parallelism"]}; most in
      ${hot.map((g) => ` ${g.group} (${count(g.entries)}, ${bytes(g.bytes)})`).join(",")}</figcaption>
    <svg viewBox=${`0 0 ${width * data["max-parallelism"]} 80`} preserveAspectRatio="none" role="img"
      aria-label=${`Entries by key group, at most ${most}`}>
      ${known.map((g) => html`<rect x=${g.group * width} y=${80 - (78 * g.entries) / most} width=${Math.max(width - 0.5, 0.5)} height=${(78 * g.entries) / most}>
        <title>${`key group ${g.group}: ${g.entries} entries, ${g.bytes} bytes`}</title></rect>`)}
    </svg>
    ${data.changes && html`<p class="quiet">An entry that several checkpoints of a chain wrote counts as often; a full checkpoint or savepoint tells entries.</p>`}
  </figure>`;
}

function Newest({ job, vertex }) {
  const { data, error } = usePoll(`jobs/${job.jid}/checkpoints`, null);
  if (!data) return html`<${Problem} error=${error} />`;
  const newest = data.history.find((entry) => entry.status === "COMPLETED" && !entry.discarded);
  if (!newest) return html`<p class="quiet">There is no completed checkpoint that is kept: take one to see them.</p>`;
  const base = `jobs/${job.jid}/checkpoints/details/${newest.id}/contents`;
  const states = vertex.states.filter((name) => !name.startsWith("_timer."));
  return html`<p class="quiet">As of ${newest.is_savepoint ? "savepoint" : "checkpoint"} ${newest.id}, read from its files.</p>
    ${states.map((name) => html`<${Groups} key=${name} base=${base} vertex=${vertex.id} name=${name} />`)}`;
}

/** Hot key groups of an operator, when somebody asks: files are read for it, once. */
export function HotGroups({ job, vertex }) {
  const [round, setRound] = useState(0);
  if (!vertex.states.length) return null;
  return html`<p><button onClick=${() => setRound(round + 1)}>${round ? "Look for hot key groups again" : "Show hot key groups"}</button></p>
    ${round > 0 && html`<${Newest} key=${round} job=${job} vertex=${vertex} />`}`;
}
