// State of a running job: a key, or the first rows, live from slots or as the last checkpoint has it.

import { html, useState } from "./vendor/preact.js";
import { keepStateToken } from "./api.js";
import { usePoll } from "./hooks.js";
import { Facts, Problem, Section, Table } from "./parts.js";
import { count, duration, moment } from "./format.js";

const ROWS = 20;

/** A name as one segment of a path. */
function segment(name) {
  return encodeURIComponent(name).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
}

/** A value of JSON as text; a pickled one is never opened, here or in the driver. */
function shown(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "object" && Object.keys(value).length === 1 && Number.isInteger(value.opaque_bytes)) {
    return `${count(value.opaque_bytes)} bytes of no declared type`;
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

function Off() {
  return html`<p class="quiet">Nobody can ask for the state of this job while it runs. To switch that on, start it with
    <code> queryable-state.enable: true</code> and give states a name with <code>descriptor.set_queryable("name")</code>, or set
    <code> weir.queryable-state.states: all</code>. What checkpoints hold is below.</p>`;
}

function Answer({ path }) {
  const { data, error } = usePoll(path, null);
  if (error) return html`<${Problem} error=${error} />`;
  if (!data) return html`<p class="quiet">Asking …</p>`;
  return html`<${Facts} label="How true it is" facts=${[
      ["shows", data.level === "live" ? "live: what slots hold, which a failure takes back" : "committed: what is never taken back"],
      [data.level === "live" ? "last checkpoint" : "of checkpoint", data["checkpoint-id"] === null ? "none yet" : data["checkpoint-id"]],
      ["epoch", data.epoch === null ? "–" : count(data.epoch)],
      ["age", data.level === "live" ? "none" : duration(data["age-ms"])],
      ["attempt", data.attempt],
      ["answered", moment(Date.now())],
    ]} />
    <${Table} caption="Answer" head=${data.columns} empty="Nothing is stored there."
      rows=${data.rows.map((row, i) => ({ key: i, cells: data.columns.map((name) => html`<span class="value">${shown(row[name])}</span>`) }))} />
    ${data.truncated && html`<p class="quiet">There are more rows: <code>weir state get</code> shows them.</p>`}`;
}

function Ask({ job, states }) {
  const [asked, setAsked] = useState(null);
  const ask = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const first = event.submitter && event.submitter.value === "first";
    const key = first ? "" : `&key=${encodeURIComponent(form.get("key"))}`;
    const path = `jobs/${job.jid}/state/${segment(form.get("state"))}?level=${form.get("level")}&limit=${ROWS}${key}`;
    setAsked((old) => ({ path, round: (old ? old.round : 0) + 1 }));
  };
  return html`<form class="row" onSubmit=${ask}>
      <label>State <select name="state">${states.map((s) => html`<option value=${s.name}>${s.name} (${s.kind})</option>`)}</select></label>
      <label>Key to ask for <input name="key" placeholder="text, or JSON" /></label>
      <label>As it is <select name="level">
        <option value="live">live</option><option value="committed">committed</option></select></label>
      <button type="submit" value="key">Ask</button>
      <button type="submit" value="first">Ask for the first rows</button>
    </form>
    ${asked && html`<${Answer} key=${asked.round} path=${asked.path} />`}`;
}

function Token({ again }) {
  const enter = (event) => {
    event.preventDefault();
    keepStateToken(new FormData(event.target).get("token").trim());
    again();
  };
  return html`<form class="row" onSubmit=${enter}>
    <label>Token for state <input name="token" type="password" autocomplete="off" required /></label>
    <button type="submit">Show the state</button> <span class="quiet"><code>weir token --state JOB</code> prints it.</span>
  </form>`;
}

function On({ job }) {
  const [round, setRound] = useState(0);
  const { data, error } = usePoll(`jobs/${job.jid}/state?round=${round}`, null);
  const again = () => setRound(round + 1);
  if (error && error.status === 401) return html`<${Problem} error=${error} /><${Token} again=${again} />`;
  if (error) return html`<${Problem} error=${error} /><p><button onClick=${again}>Look again</button></p>`;
  if (!data) return html`<p class="quiet">Asking …</p>`;
  if (!data.states.length) {
    return html`<p class="quiet">No state can be asked for yet: give it a name with <code>descriptor.set_queryable("name")</code>, or set
      <code> weir.queryable-state.states: all</code>. States appear when their operators have begun. <button onClick=${again}>Look again</button></p>`;
  }
  return html`<${Ask} job=${job} states=${data.states} />`;
}

/** What a running job knows of a key. */
export function Live({ job }) {
  return html`<${Section} id="live" title="Now">${job.queries ? html`<${On} job=${job} />` : html`<${Off} />`}<//>`;
}
