// The job: its graph, its slots, how it was over time, and what happened.

import { html, useState } from "./vendor/preact.js";
import { Chart } from "./chart.js";
import { StateSizes } from "./sizes.js";
import { Graph } from "./graph.js";
import { HotGroups } from "./groups.js";
import { usePair, usePoll } from "./hooks.js";
import { Badge, Facts, Meter, Problem, Section, Table } from "./parts.js";
import { bytes, count, duration, lag, moment, rate, share, skew, stateNames, watermark } from "./format.js";

const NARROW = window.matchMedia("(max-width: 700px)");

/** Records per second of each operator between two answers; none across attempts. */
function ratesOf({ before, now }) {
  const found = new Map();
  if (!before || !now || before.attempt !== now.attempt || now.now <= before.now) return found;
  const seconds = (now.now - before.now) / 1000;
  const old = new Map(before.vertices.map((vertex) => [vertex.id, vertex.metrics]));
  for (const vertex of now.vertices) {
    const past = old.get(vertex.id);
    if (!past) continue;
    found.set(vertex.id, {
      in: Math.max(0, vertex.metrics["read-records"] - past["read-records"]) / seconds,
      out: Math.max(0, vertex.metrics["write-records"] - past["write-records"]) / seconds,
    });
  }
  return found;
}

function last(values) {
  return values && values.length ? values[values.length - 1] : null;
}

/** The last one of values that are there now and then. */
function lastKnown(values) {
  return values.findLast((value) => value !== null) ?? null;
}

function Operator({ job, vertex, slots }) {
  const rows = vertex.subtasks.map((each) => {
    const slot = slots.find((s) => s.subtask === each.subtask);
    const behind = lag(each.watermark, job.now);
    return {
      key: each.subtask,
      cells: [
        each.subtask,
        count(each["read-records"]),
        count(each["write-records"]),
        watermark(each.watermark),
        behind === null ? "–" : duration(behind),
        slot ? slot.path : "–",
      ],
    };
  });
  const uneven = skew(vertex.subtasks.map((each) => each["read-records"]));
  return html`<${Section} id="operator" title=${vertex.name}>
    <${Facts} label="Operator" facts=${[
      ["kind", vertex.kind],
      ["uid", vertex.uid || "none: its state is found by the shape of the program"],
      ["id", html`<code>${vertex.id}</code>`],
      ["status", html`<${Badge} status=${vertex.status} />`],
      ["level", vertex.level === 0 ? "0, in Spark's workers" : vertex.level],
      ["parallelism", `${vertex.parallelism} of at most ${vertex.maxParallelism}`],
      ["states", stateNames(vertex.states) || "none known: a checkpoint tells them"],
      ["skew", uneven === null ? "–" : `${uneven.toFixed(2)} (most over mean)`],
    ]} />
    <${Table} caption=${`Subtasks of ${vertex.name}`} rows=${rows}
      empty=${vertex.level === 0 ? "Spark counts its rows itself: operators in front of the first exchange have no slots." : "No subtask has reported yet."}
      head=${["subtask", "records in", "records out", "watermark", "behind", "slot"]} />
    <${HotGroups} key=${vertex.id} job=${job} vertex=${vertex} />
  <//>`;
}

function Slots({ slots, recent, now }) {
  const of = (subtask) => recent && recent.slots.find((each) => each.subtask === subtask);
  const rows = slots.map((slot) => {
    const series = of(slot.subtask);
    const behind = lag(slot.watermark, now);
    return {
      key: slot.id,
      cells: [
        slot.subtask,
        html`<${Badge} status=${slot.ready ? "READY" : "STARTING"} />`,
        slot.path,
        html`<${Meter} value=${series ? last(series.busy) : null} label=${`Busy share of slot ${slot.subtask}`} />`,
        series ? share(last(series.cpu)) : "–",
        bytes(slot.memoryBytes),
        count(slot.stateEntries),
        watermark(slot.watermark),
        behind === null ? "–" : duration(behind),
        duration(now - slot.timeSinceLastHeartbeat),
      ],
    };
  });
  return html`<${Section} id="slots" title="Slots">
    <${Table} caption="Slots" rows=${rows} empty="No slot runs now."
      head=${["slot", "state", "process", "busy", "CPU", "memory", "state entries", "watermark", "behind", "silent for"]} />
  <//>`;
}

function Times({ job, timeline }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? timeline.whole : timeline.recent;
  const charts = [
    ["Records per second", rate, [["into slots", shown["records-in-rate"]], ["to the last operators", shown["records-out-rate"]]]],
    ["Duration of epochs", duration, [["the longest", shown["epoch-duration"]], ["Spark", shown["spark-duration"]], ["level 0", shown["level-0-duration"]],
      ["shuffles", shown["shuffle-duration"]], ["slots", shown["slot-duration"]], ["commit, behind it", shown["commit-duration"]]]],
    ["Latency from reading to commit", duration, [["the longest", shown.latency]]],
    ["Watermark behind the clock", duration, [["lag", shown.lag]]],
    ["Entries of keyed state", count, [["entries", shown["state-entries"]]]],
    ["State in the newest checkpoint", bytes, [["bytes", shown["state-size"]]]],
    ["Busy share of slots", share, shown.slots.map((s) => [`slot ${s.subtask}`, s.busy])],
    ["CPU of slots", share, shown.slots.map((s) => [`slot ${s.subtask}`, s.cpu])],
    ["Memory of slots", bytes, shown.slots.map((s) => [`slot ${s.subtask}`, s["memory-bytes"]])],
  ];
  const drawn = charts.filter(([, , lines]) => lines.some(([, values]) => values.some((v) => v !== null)));
  return html`<${Section} id="times" title="Over time">
    <p><label><input type="checkbox" checked=${whole} onChange=${(e) => setWhole(e.target.checked)} /> since the job began, not only the last minutes</label></p>
    <div class="charts">${drawn.map(([title, format, lines]) => html`<${Chart} key=${title} title=${title} at=${shown.at}
      format=${format} events=${timeline.events} series=${lines.map(([label, values]) => ({ label, values }))} />`)}
      <${StateSizes} job=${job} events=${timeline.events} /></div>
    ${!shown.at.length && html`<p class="quiet">The first points come in a second or two.</p>`}
  <//>
  <${Section} id="events" title="What happened">
    <${Table} caption="Events" empty="No restart, rescaling, savepoint or failed checkpoint so far." head=${["when", "what", ""]}
      rows=${[...timeline.events].reverse().map((e, i) => ({ key: `${e.at} ${i}`, cells: [moment(e.at), e.kind, e.text] }))} />
  <//>`;
}

function Sources({ job }) {
  const { data, error } = usePoll(`jobs/${job.jid}/sources`, 3000);
  const rows = (data ? data.sources : []).map((s, i) => ({
    key: i,
    cells: [
      html`<span class="value">${s.description}</span>`,
      count(s.rows),
      rate(s["rows-per-second"]),
      rate(s["handled-per-second"]),
      s.behind === null ? "–" : count(s.behind),
      // How long it takes to catch up at the speed of now.
      s.behind && s["handled-per-second"] > 0 ? duration((1000 * s.behind) / s["handled-per-second"]) : "–",
      html`<span class="value">${s["read-to"] || ""}</span>`,
      html`<span class="value">${s.latest || ""}</span>`,
    ],
  }));
  const steps = Object.entries(data ? data.steps : {}).filter(([name]) => name !== "triggerExecution");
  return html`<${Section} id="sources" title="Sources">
    <${Problem} error=${error} />
    ${steps.length > 0 && html`<p class="quiet">Spark's last batch: ${duration(data.steps.triggerExecution)}, of it
      ${steps.sort((a, b) => b[1] - a[1]).map(([name, ms]) => ` ${name} ${duration(ms)}`).join(",")}. The epoch is in addBatch.</p>`}
    <${Table} caption="Sources" rows=${rows} empty="Nothing is known yet: Spark tells it after a batch."
      head=${["source", "rows in the last batch", "arriving", "handled", "behind", "time behind", "read to", "latest"]} />
  <//>`;
}

/** Everything about a job at a glance. */
export function Job({ job }) {
  const pair = usePair(job);
  const [chosen, setChosen] = useState(null);
  const { data: managers, error: noSlots } = usePoll("taskmanagers", 2000);
  const { data: timeline, error: noTimes } = usePoll(`jobs/${job.jid}/timeline`, 2000);
  const { data: metrics } = usePoll(`jobs/${job.jid}/metrics?get=numberOfCompletedCheckpoints,numberOfFailedCheckpoints,lastCheckpointDuration,lastCheckpointSize`, 3000);
  const slots = (managers ? managers.taskmanagers : []).filter((slot) => slot.jobId === job.jid);
  const recent = timeline && timeline.recent;
  const shares = (recent ? recent.slots : []).map((each) => last(each.busy)).filter((v) => v !== null);
  const known = Object.fromEntries((metrics || []).map((m) => [m.id, Number(m.value)]));
  const vertex = job.vertices.find((each) => each.id === chosen);
  return html`
    <${Facts} label="Job" facts=${[
      ["running for", duration(job.duration)],
      ["parallelism", job.parallelism],
      ["attempt", job.attempt],
      ["epoch", job.epoch === null ? "–" : count(job.epoch)],
      ["latency", recent ? duration(lastKnown(recent.latency)) : "–"],
      ["records per second", recent ? rate(last(recent["records-in-rate"])) : "–"],
      ["checkpoints", metrics ? `${known.numberOfCompletedCheckpoints} complete, ${known.numberOfFailedCheckpoints} failed` : "–"],
      ["last checkpoint", metrics && known.lastCheckpointDuration >= 0 ? `${duration(known.lastCheckpointDuration)}, ${bytes(known.lastCheckpointSize)}` : "–"],
    ]} />
    <${Graph} job=${job} rates=${ratesOf(pair)} busy=${shares.length ? Math.max(...shares) : null} chosen=${chosen}
      choose=${(id) => setChosen((old) => (old === id ? null : id))} narrow=${NARROW.matches} />
    ${vertex ? html`<${Operator} job=${job} vertex=${vertex} slots=${slots} />` : html`<p class="quiet">Choose an operator to see its subtasks.</p>`}
    <${Problem} error=${noSlots || noTimes} />
    <${Sources} job=${job} />
    <${Slots} slots=${slots} recent=${recent} now=${job.now} />
    ${timeline && html`<${Times} job=${job} timeline=${timeline} />`}`;
}
