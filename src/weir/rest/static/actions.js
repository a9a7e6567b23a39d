// What can be asked of a job: each asks first, then shows how it goes until it is over.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { get, patch, post } from "./api.js";
import { away } from "./parts.js";

const EVERY_MS = 500;

/** A question with fields; `onAnswer` gets their values, or null when it was put away. */
export function Ask({ question, onAnswer }) {
  const dialog = useRef(null);
  const [values, setValues] = useState(() => Object.fromEntries(question.fields.map((f) => [f.name, f.value])));
  useEffect(() => {
    const asked = dialog.current;
    asked.showModal();
    // Closing gives the focus back to the button that asked; taking the element away would not.
    return () => asked.close();
  }, []);
  const set = (name) => (event) => {
    const { type, checked, value } = event.target;
    setValues((old) => ({ ...old, [name]: type === "checkbox" ? checked : value }));
  };
  const answer = (event) => {
    event.preventDefault();
    onAnswer(values);
  };
  return html`<dialog ref=${dialog} aria-labelledby="ask-title" onCancel=${() => onAnswer(null)}>
    <form onSubmit=${answer}>
      <h2 id="ask-title">${question.title}</h2>
      <p>${question.text}</p>
      ${question.fields.map((field) => html`<label class=${field.kind}>
        <span>${field.label}</span>
        ${field.kind === "choice"
          ? html`<select value=${values[field.name]} onChange=${set(field.name)}>${field.choices.map((c) => html`<option value=${c}>${c}</option>`)}</select>`
          : html`<input name=${field.name} type=${field.kind} checked=${field.kind === "checkbox" ? values[field.name] : undefined}
              value=${field.kind === "checkbox" ? undefined : values[field.name]} min=${field.min} required=${field.required}
              placeholder=${field.placeholder} onInput=${set(field.name)} />`}
      </label>`)}
      <div class="buttons">
        <button type="button" onClick=${() => onAnswer(null)}>Leave it</button>
        <button type="submit" class=${question.grave ? "grave" : "main"}>${question.verb}</button>
      </div>
    </form>
  </dialog>`;
}

const directory = (job) => ({
  name: "directory",
  label: "Directory for the savepoint",
  kind: "text",
  value: "",
  placeholder: job.savepointDirectory || "file:///…",
  required: !job.savepointDirectory,
});
const format = { name: "format", label: "Format", kind: "choice", choices: ["CANONICAL", "NATIVE"], value: "CANONICAL" };

/** The actions of a running job: what to ask, what to send, and where its outcome is told. */
export const ACTIONS = {
  checkpoint: {
    label: "Checkpoint",
    question: () => ({
      title: "Take a checkpoint",
      text: "The job goes on meanwhile. It replaces the oldest checkpoint that is kept.",
      verb: "Take it",
      fields: [{ name: "full", label: "Full, also where checkpoints are incremental", kind: "checkbox", value: false }],
    }),
    start: (id, v) => post(`jobs/${id}/checkpoints`, { checkpointType: v.full ? "FULL" : "CONFIGURED" }),
    outcome: (id, trigger) => `jobs/${id}/checkpoints/${trigger}`,
    done: (operation) => `Checkpoint ${operation.checkpointId} is complete.`,
  },
  savepoint: {
    label: "Savepoint",
    question: (job) => ({
      title: "Take a savepoint",
      text: "The job goes on meanwhile. The savepoint is yours: nothing deletes it but you.",
      verb: "Take it",
      fields: [directory(job), format],
    }),
    start: (id, v) => post(`jobs/${id}/savepoints`, { "target-directory": v.directory || null, formatType: v.format }),
    outcome: (id, trigger) => `jobs/${id}/savepoints/${trigger}`,
    done: (operation) => `Savepoint: ${operation.location}`,
  },
  stop: {
    label: "Stop",
    question: (job) => ({
      title: "Stop the job with a savepoint",
      text: "The job takes a savepoint and finishes with it. If the savepoint fails, the job goes on.",
      verb: "Stop the job",
      grave: true,
      fields: [
        directory(job),
        format,
        { name: "drain", label: "Drain: fire all timers first; the job cannot be resumed as if nothing had happened", kind: "checkbox", value: false },
      ],
    }),
    start: (id, v) => post(`jobs/${id}/stop`, { targetDirectory: v.directory || null, drain: v.drain, formatType: v.format }),
    outcome: (id, trigger) => `jobs/${id}/savepoints/${trigger}`,
    done: (operation) => `The job has stopped with savepoint ${operation.location}`,
  },
  rescale: {
    label: "Rescale",
    question: (job) => ({
      title: "Change the parallelism",
      text: `The job takes a checkpoint and goes on with other slots; it has ${job.parallelism} now. If that fails, it goes on as it was.`,
      verb: "Rescale",
      fields: [{ name: "parallelism", label: "New parallelism", kind: "number", min: 1, required: true, value: String(job.parallelism) }],
    }),
    start: (id, v) => patch(`jobs/${id}/rescaling?parallelism=${encodeURIComponent(v.parallelism)}`),
    outcome: (id, trigger) => `jobs/${id}/rescaling/${trigger}`,
    done: (operation, v) => `The job runs with parallelism ${v.parallelism}.`,
  },
  cancel: {
    label: "Cancel",
    question: () => ({
      title: "Cancel the job",
      text: "The job ends without a savepoint. What no checkpoint covers is lost; its checkpoints stay only if they are retained.",
      verb: "Cancel the job",
      grave: true,
      fields: [],
    }),
    start: (id) => patch(`jobs/${id}?mode=cancel`),
    outcome: (id) => `jobs/${id}/execution-result`,
    done: () => "The job was cancelled.",
  },
  dispose: {
    label: "Dispose",
    question: (job, path) => ({
      title: "Delete a savepoint",
      text: `${path} is deleted for good. A job that was started from it and still needs it keeps it from being deleted.`,
      verb: "Delete it",
      grave: true,
      fields: [],
    }),
    start: (id, v, path) => post("savepoint-disposal", { "savepoint-path": path }),
    outcome: (id, trigger) => `savepoint-disposal/${trigger}`,
    done: () => "The savepoint was deleted.",
  },
  again: {
    label: "Start again",
    question: (job, path) => ({
      title: "Start again from this savepoint",
      text: `The program ${job.program} is started as it was before, with the same arguments, in a process of its own, from ${path}.`,
      verb: "Start it",
      fields: [{ name: "parallelism", label: "Parallelism (empty: as before; one that the program itself sets wins)", kind: "number", min: 1, value: "" }],
    }),
    start: (id, v, path) => post(`jobs/${id}/start-again`, { "savepoint-path": path, parallelism: v.parallelism ? Number(v.parallelism) : null }),
    outcome: (id, trigger) => `jobs/${id}/start-again/${trigger}`,
    done: (operation) => `Job ${operation["job-id"]} has started.`,
    link: (operation) => pageOf(operation["job-id"]),
  },
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Ask how something goes; null when nobody answers any more, as after the end of a driver. */
async function asked(path) {
  try {
    return await get(path);
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}

/** Where a job is shown that has just started; null if it is over before it was seen. */
async function pageOf(job) {
  for (let tries = 0; tries < 20; tries += 1) {
    const page = await asked("page");
    const found = page && page.elsewhere.find((each) => each.jid === job);
    if (found) return found.link;
    await pause(EVERY_MS);
  }
  return null;
}

/** Start an action and wait for its outcome; returns the sentence that tells it, and a link. */
async function carryOut(action, id, values, subject, going) {
  const started = await action.start(id, values, subject);
  const path = action.outcome(id, started["request-id"]);
  const begun = Date.now();
  for (;;) {
    const answer = await asked(path);
    if (answer === null) return { text: "The process of the job has ended: the list of jobs of this host knows the rest." };
    if (answer.status.id === "COMPLETED") {
      const operation = answer.operation || {};
      const cause = operation["failure-cause"] || operation.failureCause;
      if (cause) throw new Error(cause["stack-trace"]);
      return { text: action.done(operation, values), link: action.link ? await action.link(operation) : null };
    }
    going(Math.round((Date.now() - begun) / 1000));
    await pause(EVERY_MS);
  }
}

/** What is asked and what is under way; gives the buttons' function and what to show for it. */
export function useActions(job) {
  const [asked, setAsked] = useState(null);
  const [notes, setNotes] = useState([]);
  const note = (key, change) => setNotes((old) => old.map((each) => (each.key === key ? { ...each, ...change } : each)));
  const answered = async (values) => {
    const { name, subject } = asked;
    setAsked(null);
    if (values === null) return;
    const action = ACTIONS[name];
    const key = `${Date.now()} ${name}`;
    setNotes((old) => [{ key, text: `${action.label}: under way …`, state: "busy" }, ...old].slice(0, 5));
    try {
      const going = (seconds) => note(key, { text: `${action.label}: under way for ${seconds} s …` });
      note(key, { ...(await carryOut(action, job.id, values, subject, going)), state: "done" });
    } catch (error) {
      note(key, { text: `${action.label}: ${error.message}`, state: "failed" });
    }
  };
  const forget = (key) => setNotes((old) => old.filter((each) => each.key !== key));
  const shown = html`
    ${asked && html`<${Ask} key=${asked.name} question=${ACTIONS[asked.name].question(job, asked.subject)} onAnswer=${answered} />`}
    <div class="notes" role="status" aria-live="polite">
      ${notes.map((each) => html`<p key=${each.key} class=${`note ${each.state}`}>
        <span>${each.text}${each.link && html` <a href=${away(each.link)} rel="noreferrer">Show it</a>`}</span>
        ${each.state !== "busy" && html`<button onClick=${() => forget(each.key)} aria-label="Dismiss this message">×</button>`}
      </p>`)}
    </div>`;
  return { ask: (name, subject) => setAsked({ name, subject }), shown };
}
