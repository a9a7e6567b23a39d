// Exceptions, logs, settings and threads of a job.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { get, part } from "./api.js";
import { usePoll } from "./hooks.js";
import { Facts, Problem, Table } from "./parts.js";
import { bytes, moment } from "./format.js";

const TAIL = 64 * 1024;
const KEPT = 2 * 1024 * 1024;

/** Failures, newest first, each with the user's own traceback. */
export function Exceptions({ job }) {
  const { data, error } = usePoll(`jobs/${job.jid}/exceptions?maxExceptions=20`, 2000);
  if (!data) return html`<${Problem} error=${error} />`;
  const { entries, truncated } = data.exceptionHistory;
  if (!entries.length) return html`<p class="quiet">Nothing has failed.</p>`;
  return html`${entries.map((e, i) => html`<article class="failure" key=${`${e.timestamp} ${i}`}>
      <h2>${e.taskName ? `${e.exceptionName} in ${e.taskName}` : e.exceptionName}</h2>
      <${Facts} label="Failure" facts=${[
        ["when", moment(e.timestamp)],
        ["attempt", e.attempt],
        ...(e.taskName ? [["operator", e.taskName]] : []),
        ...(e.record ? [["record", html`<span class="value">${e.record}</span>`]] : []),
      ]} />
      <pre tabindex="0" aria-label="Traceback">${e.userTraceback || e.stacktrace}</pre>
    </article>`)}
    ${truncated && html`<p class="quiet">Older ones are left out.</p>`}`;
}

/** Settings in effect, and where each was set. */
export function Configuration({ job }) {
  const { data, error } = usePoll(`jobs/${job.jid}/config`, null);
  const [filter, setFilter] = useState("");
  if (!data) return html`<${Problem} error=${error} />`;
  const wanted = filter.toLowerCase();
  const rows = Object.entries(data.configuration)
    .filter(([key, value]) => `${key} ${value}`.toLowerCase().includes(wanted))
    .map(([key, value]) => ({ key, cells: [html`<code>${key}</code>`, html`<span class="value">${value}</span>`, data.origins[key] || "–"] }));
  return html`<${Facts} label="Execution" facts=${[
      ["restart strategy", data["execution-config"]["restart-strategy"]],
      ["parallelism", data["execution-config"]["job-parallelism"]],
      ...Object.entries(data["execution-config"]["user-config"]).map(([k, v]) => [k, v]),
    ]} />
    <p><label>Find <input type="search" value=${filter} onInput=${(e) => setFilter(e.target.value)} /></label></p>
    <${Table} caption="Settings" head=${["key", "value", "set in"]} rows=${rows} empty=${filter ? "No setting has that in it." : "Everything is at its default."} />`;
}

/** Follow a log: what is behind the bytes that are known is asked for again and again. */
function Follow({ path, size, name }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [follow, setFollow] = useState(true);
  const [find, setFind] = useState("");
  const box = useRef(null);
  const at = useRef(Math.max(0, size - TAIL));
  const decoder = useRef(new TextDecoder());
  useEffect(() => {
    const control = new AbortController();
    let timer = 0;
    async function round() {
      try {
        const { data, end } = await part(path, at.current, control.signal);
        if (control.signal.aborted) return;
        at.current = end;
        if (data.length) {
          const more = decoder.current.decode(data, { stream: true });
          setText((old) => (old + more).slice(-KEPT));
        }
        setError(null);
      } catch (problem) {
        if (!control.signal.aborted) setError(problem);
      }
      if (follow && !control.signal.aborted) timer = setTimeout(round, 1500);
    }
    round();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [path, follow]);
  const lines = text.split("\n");
  const wanted = find.toLowerCase();
  const shown = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted)) : lines;
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, find]);
  const download = async () => {
    const pieces = [];
    let from = 0;
    for (;;) {
      const { data, end } = await part(path, from);
      if (!data.length) break;
      pieces.push(data);
      from = end;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(pieces, { type: "text/plain" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return html`<div class="row">
      <label><input type="checkbox" checked=${follow} onChange=${(e) => setFollow(e.target.checked)} /> follow</label>
      <label>Search <input type="search" value=${find} onInput=${(e) => setFind(e.target.value)} /></label>
      <button onClick=${() => download().catch(setError)}>Download</button>
      <span class="quiet">${wanted ? `${shown.length} of ${lines.length} lines` : ""}</span>
    </div>
    <${Problem} error=${error} />
    <pre class="log" ref=${box} tabindex="0" aria-label=${`Log ${name}`}>${shown.join("\n") || "The log is empty."}</pre>`;
}

/** Logs of the driver and of slots. */
export function Logs({ job }) {
  const [files, setFiles] = useState(null);
  const [chosen, setChosen] = useState(null);
  const [error, setError] = useState(null);
  const prefix = job.jid.slice(0, 8);
  useEffect(() => {
    const control = new AbortController();
    async function look() {
      // The server of a host is not the driver of a job that has ended, but knows its last lines.
      const { logs: own } = job.host ? { logs: [{ name: "driver.log", size: null }] } : await get("jobmanager/logs", control.signal);
      const found = own.map((log) => ({ ...log, path: `jobs/${job.jid}/driver-log`, label: "driver" }));
      for (let subtask = 0; subtask < job.parallelism; subtask += 1) {
        const base = `taskmanagers/${prefix}-${subtask}`;
        const { logs } = await get(`${base}/logs`, control.signal);
        found.push(...logs.map((log) => ({ ...log, path: `${base}/logs/${log.name}`, label: log.name })));
      }
      setFiles(found);
    }
    look().catch((problem) => control.signal.aborted || setError(problem));
    return () => control.abort();
  }, [job.jid, job.parallelism, job.attempt]);
  if (!files) return html`<${Problem} error=${error} />`;
  const log = files.find((each) => each.path === chosen) || files[0];
  return html`<p><label>Log <select value=${log.path} onChange=${(e) => setChosen(e.target.value)}>
      ${files.map((f) => html`<option value=${f.path} selected=${f.path === log.path}>${f.label}${f.size === null ? ": its last lines" : ` (${bytes(f.size)})`}</option>`)}</select></label></p>
    <${Follow} key=${log.path} path=${log.path} size=${log.size} name=${log.name} />`;
}

/** Boxes of a flame graph: each as wide as it was often seen, calls below their callers. */
function boxes(node, left, depth, whole, found) {
  found.push({ name: node.name, value: node.value, left: left / whole, width: node.value / whole, depth });
  let at = left;
  for (const child of [...node.children].sort((a, b) => b.value - a.value)) {
    if (child.value / whole >= 0.002) boxes(child, at, depth + 1, whole, found);
    at += child.value;
  }
  return found;
}

function Flames({ root }) {
  const [path, setPath] = useState([]);
  let top = root;
  for (const name of path) top = top.children.find((child) => child.name === name) || top;
  const found = boxes(top, 0, 0, Math.max(top.value, 1), []);
  const rows = Math.max(...found.map((box) => box.depth)) + 1;
  /** What makes a box a button: only those below the first one lead somewhere. */
  const leads = (box) => {
    if (box.depth !== 1) return {};
    const into = () => setPath([...path, box.name]);
    const pressed = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      into();
    };
    return { role: "button", tabindex: 0, "aria-label": `Look into ${box.name}`, onClick: into, onKeyDown: pressed };
  };
  return html`<p>${path.length > 0 && html`<button onClick=${() => setPath([])}>All threads</button>`} <span class="quiet">Choose a box below the first one to look into it.</span></p>
    <svg class="flame" viewBox=${`0 0 1000 ${rows * 18}`} height=${rows * 18} preserveAspectRatio="none" role="group"
        aria-label=${`Flame graph of ${top.name}, ${top.value} samples`}>
      ${found.map((box) => html`<g key=${`${box.depth} ${box.left}`} ...${leads(box)}>
        <rect x=${box.left * 1000} y=${box.depth * 18} width=${Math.max(box.width * 1000, 0.5)} height="17"><title>${`${box.name}: ${Math.round((100 * box.value) / Math.max(root.value, 1))} % of all samples`}</title></rect>
        ${box.width > 0.06 && html`<text x=${box.left * 1000 + 4} y=${box.depth * 18 + 13}>${box.name.slice(0, Math.floor(box.width * 150))}</text>`}
      </g>`)}
    </svg>`;
}

/** Threads of a job; the server of a host has some too, but they are none of a job's. */
export function Threads({ job }) {
  return job.host ? html`<p class="quiet">The job has ended: nothing of it runs.</p>` : html`<${Processes} job=${job} />`;
}

/** Where threads are: the driver's and each slot's; and where a slot was for a while. */
function Processes({ job }) {
  const [where, setWhere] = useState("driver");
  const [round, setRound] = useState(0);
  const [flames, setFlames] = useState(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const slots = Array.from({ length: job.parallelism }, (_, i) => i);
  const path = where === "driver" ? "jobmanager/thread-dump" : `taskmanagers/${job.jid.slice(0, 8)}-${where}/thread-dump`;
  const { data, error } = usePoll(`${path}?round=${round}`, null);
  const vertex = job.vertices.find((each) => each.level > 0 && each.parallelism > Number(where));
  const sample = async () => {
    setBusy(true);
    setProblem(null);
    try {
      setFlames((await get(`jobs/${job.jid}/vertices/${vertex.id}/flamegraph?subtaskindex=${where}&duration=3000`)).data);
    } catch (failed) {
      setProblem(failed);
    }
    setBusy(false);
  };
  const choose = (event) => {
    setFlames(null);
    setProblem(null);
    setWhere(event.target.value);
  };
  return html`<div class="row">
      <label>Process <select value=${where} onChange=${choose}><option value="driver">driver</option>
        ${slots.map((i) => html`<option value=${i}>slot ${i}</option>`)}</select></label>
      <button onClick=${() => setRound(round + 1)}>Look again</button>
      ${where !== "driver" && vertex && html`<button disabled=${busy} onClick=${sample}>${busy ? "Looking for 3 s …" : "Flame graph"}</button>`}
    </div>
    <${Problem} error=${error || problem} />
    ${flames && html`<${Flames} key=${where} root=${flames} />`}
    ${data && data.threadInfos.map((t, i) => html`<details key=${i}><summary>${t.threadName}</summary>
      <pre tabindex="0" aria-label=${`Stack of ${t.threadName}`}>${t.stringifiedThreadInfo}</pre></details>`)}`;
}
