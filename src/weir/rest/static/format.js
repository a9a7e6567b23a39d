// Numbers and times as people read them.

const NEVER = 2 ** 62;
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

export function bytes(size) {
  if (size === null || size === undefined || size < 0) return "–";
  let value = size;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.round(value).toLocaleString("en");
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return `${value >= 10 || value === 0 ? count(value) : value.toFixed(1)}/s`;
}

export function share(value) {
  return value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`;
}

export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function moment(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** A watermark: a time, or one of the two ends of time. */
export function watermark(value) {
  if (value === null || value === undefined) return "–";
  if (value <= -NEVER) return "none yet";
  if (value >= NEVER) return "end of input";
  return Math.abs(value) < 1e11 ? count(value) : moment(value);
}

/** How far a watermark is behind a clock; null at the ends of time, and for times that are no dates. */
export function lag(value, now) {
  if (value === null || value === undefined || Math.abs(value) >= NEVER || Math.abs(value) < 1e11) return null;
  return now - value;
}

/** How uneven numbers are: the greatest over the mean, 1 is even; null where nothing was counted. */
export function skew(values) {
  const sum = values.reduce((a, b) => a + b, 0);
  return sum > 0 && values.length > 1 ? (Math.max(...values) * values.length) / sum : null;
}

/** The name of a state; queues of timers have one that programs do not know. */
export function plainState(state) {
  return state.startsWith("_timer.") ? `timers, ${state.slice(7).replace(/_/g, " ")}` : state;
}

/** A state's name with its operator's; without one, files in which states are not told apart. */
export function stateName(name, state) {
  return state === "" ? `${name}: files of a database, or of an earlier job` : `${name}: ${plainState(state)}`;
}

/** All states of an operator in a line, those of the program first. */
export function stateNames(states) {
  const timers = states.filter((name) => name.startsWith("_timer."));
  return [...states.filter((name) => !timers.includes(name)), ...timers.map(plainState)].join(", ");
}
