// Requests to the server that this page came from, and the token that they need.
//
// The token comes in the fragment of the link, which browsers send to nobody. It is kept for this
// tab only, goes out as a header, and is taken out of the address at once.

const KEY = "weir-token";
const STATE_KEY = "weir-state-token";
const STATE = /^jobs\/[0-9a-f]{32}\/state(?:[/?]|$)/;

export class Refused extends Error {
  constructor(status, messages) {
    super(messages.join(" ") || `HTTP ${status}`);
    this.name = "Refused";
    this.status = status;
  }
}

/** Read the fragment: a path, and parameters behind a question mark. */
export function place() {
  const text = location.hash.replace(/^#/, "") || "/";
  const [path, query] = [text.split("?")[0], text.includes("?") ? text.slice(text.indexOf("?") + 1) : ""];
  return { path: path.startsWith("/") ? path : "/", query: new URLSearchParams(query) };
}

/** Keep a token that came with the link, and take it out of the address. */
export function takeToken() {
  const { path, query } = place();
  const token = query.get("token");
  if (token === null) return;
  keepToken(token);
  query.delete("token");
  const rest = query.toString();
  history.replaceState(null, "", `#${path}${rest ? `?${rest}` : ""}`);
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

/** Keep a token that is good for state alone, where the other one is not. */
export function keepStateToken(token) {
  sessionStorage.setItem(STATE_KEY, token);
}

function tokenFor(path) {
  const own = STATE.test(path) ? sessionStorage.getItem(STATE_KEY) : null;
  return own || sessionStorage.getItem(KEY);
}

/** Send a request; gives the answer, or throws `Refused` with what the server says. */
export async function send(method, path, body, signal) {
  const headers = {};
  const token = tokenFor(path);
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  let messages = [];
  try {
    messages = (await answer.json()).errors;
  } catch {
    // Not ours: the status is all there is to say.
  }
  throw new Refused(answer.status, Array.isArray(messages) ? messages.map(String) : []);
}

export async function get(path, signal) {
  return (await send("GET", path, undefined, signal)).json();
}

export async function post(path, body) {
  return (await send("POST", path, body)).json();
}

export async function patch(path) {
  return (await send("PATCH", path)).json();
}

/** Return bytes of a log from a place on, and where they end; the oldest ones may be forgotten. */
export async function part(path, start, signal) {
  const answer = await send("GET", `${path}?start=${start}`, undefined, signal);
  const data = new Uint8Array(await answer.arrayBuffer());
  return { data, end: Number(answer.headers.get("Weir-Start") || start) + data.length };
}
