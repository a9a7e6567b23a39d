// Checkpoints: counts, spreads, history, one of them in detail, settings.

import { html, useState } from "./vendor/preact.js";
import { Chart } from "./chart.js";
import { usePoll } from "./hooks.js";
import { StateSizes } from "./sizes.js";
import { Badge, Facts, Problem, Section, Table } from "./parts.js";
import { bytes, count, duration, moment } from "./format.js";

const SHOWN = 25;
const NEVER = 2 ** 62;

function kind(entry) {
  if (entry.is_savepoint) return `savepoint, ${String(entry.savepointFormat).toLowerCase()}`;
  return entry.checkpoint_type === "UNALIGNED_CHECKPOINT" ? "unaligned checkpoint" : "checkpoint";
}

/** Whether it holds everything itself; null while nobody has said so. */
function extent(entry) {
  if (entry.status !== "COMPLETED" || !entry.num_acknowledged_subtasks) return null;
  return entry.reused_size > 0 ? "incremental" : "full";
}

function Spread({ summary }) {
  const rows = [
    ["duration", summary.end_to_end_duration, duration],
    ["written", summary.checkpointed_size, bytes],
    ["full size", summary.state_size, bytes],
    ["rows in flight", summary.persisted_data, bytes],
  ].map(([name, s, format]) => ({ key: name, cells: [name, format(s.min), format(s.avg), format(s.p50), format(s.p95), format(s.p99), format(s.max)] }));
  return html`<${Table} caption="Spread over completed checkpoints" head=${["", "least", "mean", "median", "95 %", "99 %", "most"]} rows=${rows} />`;
}

function Sizes({ job, history }) {
  const done = history.filter((entry) => entry.status === "COMPLETED").reverse();
  if (done.length < 2) return null;
  const at = done.map((entry) => entry.trigger_timestamp);
  return html`<div class="charts">
    <${Chart} title="Size of checkpoints" at=${at} format=${bytes} series=${[
      { label: "full size", values: done.map((e) => e.state_size) },
      { label: "written", values: done.map((e) => e.checkpointed_size) },
    ]} />
    <${Chart} title="Duration of checkpoints" at=${at} format=${duration} series=${[{ label: "end to end", values: done.map((e) => e.end_to_end_duration) }]} />
    <${StateSizes} job=${job} />
  </div>`;
}

function Subtasks({ base, vertex }) {
  const { data, error } = usePoll(`${base}/subtasks/${vertex.id}`, null);
  const rows = (data ? data.subtasks : []).map((each) => ({
    key: each.index,
    cells: each.status === "pending_or_failed" || each.checkpoint === undefined
      ? [each.index, "no answer", "", "", "", "", "", ""]
      : [each.index, moment(each.ack_timestamp), duration(each.end_to_end_duration), duration(each.checkpoint.sync), duration(each.checkpoint.async),
        bytes(each.checkpointed_size), bytes(each.alignment.persisted), duration(each.alignment.duration)],
  }));
  return html`<${Problem} error=${error} />
    <${Table} caption=${`Subtasks of ${vertex.name}`} rows=${rows} empty="Operators in front of the first exchange keep nothing in slots."
      head=${["subtask", "acknowledged", "duration", "sync", "async", "written", "in flight", "alignment"]} />`;
}

function Details({ job, number }) {
  const base = `jobs/${job.jid}/checkpoints/details/${number}`;
  const { data, error } = usePoll(base, 2000);
  const [open, setOpen] = useState(null);
  if (!data) return html`<${Problem} error=${error} />`;
  const rows = job.vertices.map((vertex) => {
    const task = data.tasks[vertex.id];
    const toggle = () => setOpen((old) => (old === vertex.id ? null : vertex.id));
    return {
      key: vertex.id,
      cells: [
        html`<button class="link" aria-expanded=${open === vertex.id} onClick=${toggle}>${vertex.name}</button>`,
        `${task ? task.num_acknowledged_subtasks : 0} of ${vertex.parallelism}`,
        task ? moment(task.latest_ack_timestamp) : "–",
        task ? duration(task.end_to_end_duration) : "–",
        task ? bytes(task.checkpointed_size) : "–",
        task ? bytes(task.persisted_data) : "–",
      ],
    };
  });
  const chosen = job.vertices.find((vertex) => vertex.id === open);
  return html`<${Section} id="details" title=${`${data.is_savepoint ? "Savepoint" : "Checkpoint"} ${data.id}`}>
    <${Facts} label="Checkpoint" facts=${[
      ["status", html`<${Badge} status=${data.status} />`],
      ["kind", kind(data)],
      ["triggered", moment(data.trigger_timestamp)],
      ["duration", duration(data.end_to_end_duration)],
      ["written", bytes(data.checkpointed_size)],
      ["full size", bytes(data.state_size)],
      ["extent", extent(data) === "incremental" ? `incremental: ${bytes(data.reused_size)} are in files of earlier checkpoints` : extent(data) || "–"],
      ["acknowledged", `${data.num_acknowledged_subtasks} of ${data.num_subtasks}`],
      ["path", data.external_path ? html`<code>${data.external_path}</code>` : "–"],
      ...(data.failure_message ? [["failure", data.failure_message]] : []),
      ...(data.discarded ? [["deleted", "yes: newer ones replaced it"]] : []),
    ]} />
    <${Table} caption="Operators in this checkpoint" head=${["operator", "acknowledged", "last at", "duration", "written", "in flight"]} rows=${rows} />
    ${chosen && html`<${Subtasks} key=${chosen.id} base=${base} vertex=${chosen} />`}
    <p><a href=${`#/jobs/${job.jid}/checkpoints`}>Close</a></p>
  <//>`;
}

function History({ job, history, actions, over }) {
  const [all, setAll] = useState(false);
  const shown = all ? history : history.slice(0, SHOWN);
  const rows = shown.map((entry) => ({
    key: entry.id,
    cells: [
      html`<a href=${`#/jobs/${job.jid}/checkpoints/${entry.id}`} aria-label=${`Details of checkpoint ${entry.id}`}>${entry.id}</a>`,
      html`<${Badge} status=${entry.discarded ? "DELETED" : entry.status} />`,
      [kind(entry), extent(entry)].filter(Boolean).join(", "),
      moment(entry.trigger_timestamp),
      duration(entry.end_to_end_duration),
      bytes(entry.checkpointed_size),
      bytes(entry.state_size),
      entry.failure_message || (entry.external_path ? html`<code class="path">${entry.external_path}</code>` : ""),
      entry.status === "COMPLETED" && !entry.discarded
        ? html`<span class="buttons">
            <a class="button" href=${`#/jobs/${job.jid}/state/${entry.id}`} aria-label=${`State in checkpoint ${entry.id}`}>State</a>
            ${entry.is_savepoint && html`<button onClick=${() => actions.ask("dispose", entry.external_path)} aria-label=${`Dispose savepoint ${entry.id}`}>Dispose</button>`}
            ${over && job.program && html`<button onClick=${() => actions.ask("again", entry.external_path)} aria-label=${`Start again from ${entry.id}`}>Start again</button>`}
          </span>`
        : "",
    ],
  }));
  return html`<${Section} id="history" title="History">
    <${Table} caption="History of checkpoints" empty="No checkpoint yet." rows=${rows}
      head=${["id", "status", "kind", "triggered", "duration", "written", "full size", "path or failure", ""]} />
    ${history.length > SHOWN && html`<p><button onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${history.length}`}</button></p>`}
  <//>`;
}

function HeldFiles({ job }) {
  const { data, error } = usePoll(`jobs/${job.jid}/checkpoints/files`, null);
  if (!data) return error ? html`<${Problem} error=${error} />` : html`<p class="quiet">Reading …</p>`;
  const rows = data.files.map((file) => ({
    key: file.path,
    cells: [html`<code>${file.path}</code>`, bytes(file.bytes), count(file.checkpoints.length), file.checkpoints.join(", ")],
  }));
  return html`<p class="quiet">${bytes(data.bytes)} in the files of ${data.checkpoints.length} checkpoints, ${bytes(data["shared-bytes"])} of it in files
      that several of them hold; such a file goes with the last of them.
      ${data["left-out"] > 0 && ` ${data["left-out"]} older checkpoints were not looked at.`}${data.more > 0 && ` ${data.more} more files are not shown.`}</p>
    <${Table} caption="Files of checkpoints" head=${["file", "size", "holders", "held by checkpoints"]} rows=${rows} empty="All state is inside of _metadata." />
    ${data.problems.map((p) => html`<p class="problem">${p}</p>`)}`;
}

/** What holds which file; metadata is read for it, so only when somebody asks. */
function Files({ job }) {
  const [round, setRound] = useState(0);
  return html`<${Section} id="files" title="Files">
    <p><button onClick=${() => setRound(round + 1)}>${round ? "Look at the files again" : "Show which checkpoints hold which file"}</button></p>
    ${round > 0 && html`<${HeldFiles} key=${round} job=${job} />`}
  <//>`;
}

function Settings({ job }) {
  const { data, error } = usePoll(`jobs/${job.jid}/checkpoints/config`, null);
  if (!data) return html`<${Problem} error=${error} />`;
  const kept = !data.externalization.enabled ? "deleted when the job ends" : data.externalization.delete_on_cancellation ? "deleted when the job is cancelled" : "retained when the job is cancelled";
  return html`<${Section} id="settings" title="Settings">
    <${Facts} label="Settings of checkpoints" facts=${[
      ["mode", data.mode.replace(/_/g, " ")],
      ["interval", data.interval >= NEVER ? "none: only when asked for" : duration(data.interval)],
      ["timeout", duration(data.timeout)],
      ["pause between", duration(data.min_pause)],
      ["at the same time", data.max_concurrent],
      ["kept", data.num_retained],
      ["checkpoints are", kept],
      ["unaligned", data.unaligned_checkpoints ? "yes" : "no"],
      ["failures tolerated", count(data.tolerable_failed_checkpoints)],
      ["state backend", data.state_backend],
      ["storage", data.checkpoint_storage],
      ["changelog", data.state_changelog_enabled ? "yes" : "no"],
    ]} />
  <//>`;
}

/** All about the checkpoints of a job. */
export function Checkpoints({ job, number, actions, over }) {
  const { data, error } = usePoll(`jobs/${job.jid}/checkpoints`, 2000);
  if (!data) return html`<${Problem} error=${error} />`;
  const { counts, latest } = data;
  return html`<${Problem} error=${error} />
    <${Facts} label="Counts" facts=${[
      ["triggered", count(counts.total)],
      ["in progress", count(counts.in_progress)],
      ["complete", count(counts.completed)],
      ["failed", count(counts.failed)],
      ["restored", count(counts.restored)],
      ["last complete", latest.completed ? `${latest.completed.id}, ${moment(latest.completed.trigger_timestamp)}` : "none"],
      ["last savepoint", latest.savepoint ? `${latest.savepoint.id}, ${moment(latest.savepoint.trigger_timestamp)}` : "none"],
      ["restored from", latest.restored ? html`<code>${latest.restored.external_path}</code>` : "nothing: it started empty"],
    ]} />
    ${latest.failed && html`<p class="quiet">Last failure: checkpoint ${latest.failed.id}, ${moment(latest.failed.failure_timestamp)}: ${latest.failed.failure_message}</p>`}
    ${number !== null && html`<${Details} key=${number} job=${job} number=${number} />`}
    <${History} job=${job} history=${data.history} actions=${actions} over=${over} />
    <${Sizes} job=${job} history=${data.history} />
    <${Section} id="spread" title="Spread"><${Spread} summary=${data.summary} /><//>
    <${Files} job=${job} />
    <${Settings} job=${job} />`;
}
