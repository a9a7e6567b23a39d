// The page: who may see it, where one is in it, and the frame around every view.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { keepToken, takeToken } from "./api.js";
import { useActions } from "./actions.js";
import { Checkpoints } from "./checkpoints.js";
import { duration, moment } from "./format.js";
import { usePlace, usePoll } from "./hooks.js";
import { Job } from "./job.js";
import { Configuration, Exceptions, Logs, Threads } from "./more.js";
import { Badge, Problem, Section, Table, away } from "./parts.js";
import { State } from "./state.js";

const OVER = ["FINISHED", "CANCELED", "FAILED"];
const TABS = [
  ["", "Job"],
  ["checkpoints", "Checkpoints"],
  ["state", "State"],
  ["exceptions", "Exceptions"],
  ["logs", "Logs"],
  ["configuration", "Configuration"],
  ["threads", "Threads"],
];

function SignIn({ again }) {
  const enter = (event) => {
    event.preventDefault();
    keepToken(new FormData(event.target).get("token").trim());
    again();
  };
  return html`<main class="sign-in">
    <h1>Weir</h1>
    <form onSubmit=${enter}>
      <p>This page needs the token of the job. <code>weir page JOB</code> prints a link with it, <code>weir token JOB</code> the token itself.</p>
      <label>Token <input name="token" type="password" autocomplete="off" required autofocus /></label>
      <button class="main" type="submit">Show the jobs</button>
    </form>
  </main>`;
}

function Jobs({ error, jobs, page }) {
  const others = (page ? page.elsewhere : []).map((job) => ({
    key: job.jid,
    cells: [
      html`<a href=${away(job.link)} rel="noreferrer">${job.name}</a>`,
      html`<${Badge} status=${job.state} />`,
      moment(job["start-time"]),
      "–",
      "–",
      html`<code>${job.jid}</code>`,
    ],
  }));
  const sorted = [...jobs].sort((a, b) => b["start-time"] - a["start-time"]);
  const rows = (wanted) => sorted.filter((job) => OVER.includes(job.state) === wanted).map((job) => ({
    key: job.jid,
    cells: [
      html`<a href=${`#/jobs/${job.jid}`}>${job.name}</a>`,
      html`<${Badge} status=${job.state} />`,
      moment(job["start-time"]),
      duration(job.duration),
      job.tasks.total,
      html`<code>${job.jid}</code>`,
    ],
  }));
  const head = ["name", "status", "started", "duration", "tasks", "id"];
  return html`<main>
    <h1>Jobs</h1>
    <${Problem} error=${error} />
    <${Section} id="running" title="Running"><${Table} caption="Running jobs" head=${head} rows=${[...rows(false), ...others]} empty="No job runs." /><//>
    <${Section} id="ended" title="Ended"><${Table} caption="Jobs that have ended" head=${head} rows=${rows(true)} empty="None has ended." /><//>
  </main>`;
}

function OneJob({ id, page, view, rest, leave }) {
  const { data: job, error } = usePoll(`jobs/${id}`, 2000);
  const program = (page && page.programs[id]) || null;
  const actions = useActions({
    id,
    parallelism: job ? job.parallelism : 1,
    program,
    savepointDirectory: job ? job["savepoint-directory"] : null,
  });
  useEffect(() => {
    document.title = job ? `${job.name} · Weir` : "Weir";
  }, [job && job.name]);
  if (!job) {
    return html`<main><p><a href="#/">All jobs</a></p><${Problem} error=${error} />${!error && html`<p class="quiet">Asking …</p>`}</main>`;
  }
  const over = OVER.includes(job.state);
  const shown = { ...job, program, host: Boolean(page && page.host) };
  const number = /^\d+$/.test(rest || "") ? Number(rest) : null;
  const views = {
    "": () => html`<${Job} job=${shown} />`,
    checkpoints: () => html`<${Checkpoints} job=${shown} number=${number} actions=${actions} over=${over} />`,
    state: () => html`<${State} job=${shown} number=${number} over=${over} go=${(n) => leave(`/jobs/${id}/state/${n}`)} />`,
    exceptions: () => html`<${Exceptions} job=${shown} />`,
    logs: () => html`<${Logs} job=${shown} />`,
    configuration: () => html`<${Configuration} job=${shown} />`,
    threads: () => html`<${Threads} job=${shown} />`,
  };
  return html`<header class="top">
      <p class="crumbs"><a href="#/">Jobs</a> <span aria-hidden="true">›</span> <code>${id.slice(0, 8)}</code></p>
      <div class="title"><h1>${job.name}</h1><${Badge} status=${job.state} />
        <div class="buttons" role="group" aria-label="Actions">
          ${!over && ["checkpoint", "savepoint", "rescale", "stop", "cancel"].map((name) => html`<button key=${name} onClick=${() => actions.ask(name)}>${
            { checkpoint: "Checkpoint", savepoint: "Savepoint", rescale: "Rescale", stop: "Stop", cancel: "Cancel" }[name]}</button>`)}
        </div>
      </div>
      <nav aria-label="Views of the job">${TABS.map(([name, label]) => html`<a key=${name} href=${`#/jobs/${id}${name && `/${name}`}`}
        aria-current=${name === view ? "page" : undefined}>${label}</a>`)}</nav>
    </header>
    ${error && html`<p class="problem" role="alert">The JobManager does not answer (${error.message}). What is shown is what it said last.</p>`}
    ${actions.shown}
    <main>${(views[view] || views[""])()}</main>`;
}

function App() {
  const here = usePlace();
  const [round, setRound] = useState(0);
  const { data, error } = usePoll(`jobs/overview?round=${round}`, 3000);
  const { data: page } = usePoll(data ? "page" : null, 3000);
  useEffect(() => {
    takeToken();
  }, [here]);
  const match = here.path.match(/^\/jobs\/([0-9a-f]{32})(?:\/([a-z]+))?(?:\/([0-9]+))?$/);
  useEffect(() => {
    if (!match) document.title = "Weir";
  }, [here.path]);
  if (error && error.status === 401) return html`<${SignIn} again=${() => setRound(round + 1)} />`;
  const leave = (path) => {
    location.hash = path;
  };
  if (match) return html`<${OneJob} key=${match[1]} id=${match[1]} page=${page} view=${match[2] || ""} rest=${match[3]} leave=${leave} />`;
  if (!data) return html`<main><h1>Weir</h1><${Problem} error=${error} />${!error && html`<p class="quiet">Asking …</p>`}</main>`;
  return html`<${Jobs} jobs=${data.jobs} error=${error} page=${page} />`;
}

takeToken();
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
