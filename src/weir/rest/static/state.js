// State: of now, if the job takes queries; and in a completed checkpoint: operators, states, key
// groups, rows, differences, files.

import { html, useState } from "./vendor/preact.js";
import { Groups } from "./groups.js";
import { usePoll } from "./hooks.js";
import { Live } from "./live.js";
import { Facts, Problem, Section, Table } from "./parts.js";
import { bytes, count, moment } from "./format.js";

const ROWS = 20;

function types(found) {
  return Object.entries(found).map(([role, type]) => `${role}: ${type}`).join(", ");
}

function Rows({ base, vertex, name }) {
  const [key, setKey] = useState("");
  const [asked, setAsked] = useState(null);
  const only = asked === null ? "" : `&key=${encodeURIComponent(asked)}`;
  const { data, error } = usePoll(`${base}/${vertex}/rows?state=${encodeURIComponent(name)}&limit=${ROWS}${only}`, null);
  const look = (event) => {
    event.preventDefault();
    setAsked(key === "" ? null : key);
  };
  return html`<form class="row" onSubmit=${look}>
      <label>Key <input value=${key} onInput=${(e) => setKey(e.target.value)} placeholder="text, or JSON" /></label>
      <button type="submit">Look up</button>
      ${asked !== null && html`<button type="button" onClick=${() => { setKey(""); setAsked(null); }}>First rows</button>`}
    </form>
    <${Problem} error=${error} />
    ${data && html`<${Table} caption=${`Rows of ${name}`} head=${data.columns} empty=${asked === null ? "No rows." : "This key has no entry."}
      rows=${data.rows.map((cells, i) => ({ key: i, cells: cells.map((c) => html`<span class="value">${c}</span>`) }))} />`}
    ${data && data.more && html`<p class="quiet">There are more rows: weir state cat shows them.</p>`}`;
}

function Operator({ base, operator, chosen, choose }) {
  const keyed = operator.states.map((s) => ({
    key: `k ${s.name}`,
    cells: [
      html`<button class="link" aria-expanded=${chosen === s.name} onClick=${() => choose(s.name)}>${s.name}</button>`,
      s.kind,
      types(s.types),
      s.entries === null ? (s.changes ? `${count(s.changes)} changes` : "in a database") : count(s.entries),
      bytes(s.bytes),
      s.expires ? "yes" : "no",
      s.key_groups || "none",
    ],
  }));
  const split = operator.operator_states.map((s) => ({
    key: `o ${s.name}`,
    cells: [
      html`<button class="link" aria-expanded=${chosen === s.name} onClick=${() => choose(s.name)}>${s.name}</button>`,
      `operator state, ${s.mode}`, types(s.types), count(s.elements), bytes(s.bytes), "no", "",
    ],
  }));
  const isKeyed = operator.states.some((s) => s.name === chosen);
  return html`<${Section} id=${`op-${operator.id}`} title=${operator.name}>
    <p class="quiet">uid ${operator.uid || "none"} · ${operator.parallelism} of at most ${operator.max_parallelism} subtasks · ${bytes(operator.bytes)}
      ${operator.database_bytes ? ` · ${bytes(operator.database_bytes)} in a database` : ""}</p>
    <${Table} caption=${`States of ${operator.name}`} rows=${[...keyed, ...split]} empty="No state."
      head=${["state", "kind", "types", "entries", "size", "expires", "key groups"]} />
    ${chosen && isKeyed && html`<${Groups} key=${`g ${chosen}`} base=${base} vertex=${operator.id} name=${chosen} />`}
    ${chosen && html`<${Rows} key=${`r ${chosen}`} base=${base} vertex=${operator.id} name=${chosen} />`}
  <//>`;
}

/** Which files a checkpoint needs, and who reads each: a chain shows as several layers. */
function Files({ description }) {
  const uses = new Map();
  for (const operator of description.operators) {
    for (const subtask of operator.subtasks) {
      for (const file of subtask.files) {
        const known = uses.get(file.path) || { ...file, readers: new Set() };
        known.readers.add(`${operator.name} ${subtask.index}`);
        uses.set(file.path, known);
      }
    }
  }
  const rows = [...uses.values()].map((f) => ({
    key: f.path,
    cells: [html`<code>${f.in_metadata ? "inside _metadata" : f.path}</code>`, f.role, bytes(f.bytes), [...f.readers].join(", ")],
  }));
  return html`<${Section} id="files" title="Files">
    <p class="quiet">${description.relocatable ? "The directory can be moved: nothing lies outside of it." : description.outside.join("; ")}</p>
    <${Table} caption="Files" head=${["file", "role", "size", "read by"]} rows=${rows} empty="No files." />
    ${description.problems.map((p) => html`<p class="problem">${p}</p>`)}
  <//>`;
}

function Diff({ job, entries }) {
  const [pair, setPair] = useState(null);
  const choose = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setPair([form.get("from"), form.get("to")]);
  };
  const { data, error } = usePoll(pair && `jobs/${job.jid}/checkpoints/diff?from=${pair[0]}&to=${pair[1]}`, null);
  const option = (e) => html`<option value=${e.id}>${e.is_savepoint ? "savepoint" : "checkpoint"} ${e.id}, ${moment(e.trigger_timestamp)}</option>`;
  const rows = (data ? data.states : []).map((s) => ({
    key: `${s.operator} ${s.state}`,
    cells: [s.operator, s.state, s.kind, count(s.added), count(s.removed), count(s.changed), count(s.same), s.note || ""],
  }));
  const examples = (data ? data.states : []).flatMap((s) => s.examples.map((x, i) => ({
    key: `${s.operator} ${s.state} ${i}`,
    cells: [s.operator, s.state, x.what, html`<span class="value">${x.entry}</span>`, html`<span class="value">${x.before || ""}</span>`, html`<span class="value">${x.after || ""}</span>`],
  })));
  return html`<${Section} id="diff" title="Difference of two">
    <form class="row" onSubmit=${choose}>
      <label>before <select name="from">${[...entries].reverse().map(option)}</select></label>
      <label>after <select name="to">${entries.map(option)}</select></label>
      <button type="submit">Compare</button>
    </form>
    <${Problem} error=${error} />
    ${data && html`<${Table} caption="Differences" rows=${rows} head=${["operator", "state", "kind", "added", "removed", "changed", "same", ""]} empty="No state on either side." />`}
    ${examples.length > 0 && html`<${Table} caption="Examples of differences" rows=${examples} head=${["operator", "state", "what", "entry", "before", "after"]} />`}
  <//>`;
}

function Contents({ job, entry }) {
  const base = `jobs/${job.jid}/checkpoints/details/${entry.id}/contents`;
  const { data, error } = usePoll(base, null);
  const [chosen, setChosen] = useState({});
  if (!data) return error ? html`<${Problem} error=${error} />` : html`<p class="quiet">Reading …</p>`;
  const pick = (id) => (name) => setChosen((old) => ({ ...old, [id]: old[id] === name ? null : name }));
  return html`<${Facts} label="Contents" facts=${[
      ["taken", moment(data.timestamp_ms)],
      ["size", bytes(data.bytes)],
      ["files", count(data.files)],
      ["in shared files", bytes(data.shared_bytes)],
      ["format", data.savepoint_format || "checkpoint"],
      ["path", html`<code>${data.location}</code>`],
    ]} />
    ${data.operators.filter((o) => o.has_state).map((operator) => html`<${Operator} key=${operator.id} base=${base} operator=${operator}
      chosen=${chosen[operator.id]} choose=${pick(operator.id)} />`)}
    <${Section} id="sources" title="Sources">
      <${Table} caption="Positions of sources" head=${["source", "position", "records"]} empty="No sources."
        rows=${data.sources.map((s) => ({ key: s.uid, cells: [s.uid, html`<span class="value">${s.position}</span>`, count(s.records)] }))} />
    <//>
    <${Files} description=${data} />`;
}

/** What a job knows, and what it has committed. */
export function State({ job, number, go, over }) {
  return html`${!over && html`<${Live} job=${job} />`}
    <${Section} id="committed" title="In checkpoints"><${Committed} job=${job} number=${number} go=${go} /><//>`;
}

function Committed({ job, number, go }) {
  const { data, error } = usePoll(`jobs/${job.jid}/checkpoints`, 5000);
  if (!data) return html`<${Problem} error=${error} />`;
  const entries = data.history.filter((e) => e.status === "COMPLETED" && !e.discarded);
  if (!entries.length) return html`<p class="quiet">There is no completed checkpoint that is kept. Take one, or a savepoint, to look into state.</p>`;
  const entry = entries.find((e) => e.id === number) || (number === null ? entries[0] : null);
  return html`<p><label>As of <select value=${entry ? entry.id : ""} onChange=${(e) => go(e.target.value)}>
      ${entries.map((e) => html`<option value=${e.id} selected=${entry && e.id === entry.id}>${e.is_savepoint ? "savepoint" : "checkpoint"} ${e.id}, ${moment(e.trigger_timestamp)}</option>`)}
    </select></label> <span class="quiet">What was committed then, read from its files; nothing is unpickled.</span></p>
    ${entry ? html`<${Contents} key=${entry.id} job=${job} entry=${entry} />` : html`<p class="problem" role="alert">Checkpoint ${number} is not kept any more: choose another one.</p>`}
    ${entries.length > 1 && html`<${Diff} job=${job} entries=${entries} />`}`;
}
