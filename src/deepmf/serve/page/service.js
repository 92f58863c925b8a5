// Requests to the service: keys, retries, and errors in its own words.

import { learnNames } from "/page/wording.js";

const IDS = new Set(["row", "column", "id"]);
const KEY = "deepmf.key";
const MOST_TRIES = 3;
const MOST_LOOKS = 15; // for a write that another worker of the service acknowledged
const LOOK = 100; // milliseconds

let written = 0; // the data version of the last write

let askForKey = async () => null;
let keyAsked = null;

/** A request that was refused, or that never arrived; its message is a sentence for people. */
export class ServiceError extends Error {
  constructor(status, code, message) {
    super(message.charAt(0).toUpperCase() + message.slice(1));
    this.status = status;
    this.code = code;
  }
}

/** Set how somebody is asked for an API key: a function of the reason that returns the key. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** Return the answer to a request; one that did not arrive is sent again, which is safe for all that the page asks. */
export async function ask(method, path, body, { signal } = {}) {
  const action = method === "GET" || method === "POST" ? null : randomId();
  let looks = 0;
  for (let tries = 1; ; tries += 1) {
    const answer = await send(method, path, body, action, signal);
    if (action === null && isBehind(answer) && (looks += 1) < MOST_LOOKS) {
      await pause(LOOK, signal);
    } else if (answer.ok) {
      if (action !== null) written = answer.content.version.data;
      learnNames(answer.content);
      return answer.content;
    } else if (answer.status === 401) {
      await newKey(answer.error.message);
    } else if (tries >= MOST_TRIES || ![0, 429, 503].includes(answer.status)) {
      throw answer.error;
    } else {
      await pause(answer.wait ?? 300 * 2 ** tries, signal);
    }
  }
}

/** Forget the API key, so that the next request asks for another. */
export function dropKey() {
  sessionStorage.removeItem(KEY);
}

/** Return the path of the entries of a row. */
export function entriesOf(row) {
  return `/v1/rows/${encodeURIComponent(row)}/entries`;
}

/** Return the path of the columns that a row has dismissed. */
export function dismissedOf(row) {
  return `/v1/rows/${encodeURIComponent(row)}/dismissed`;
}

/** Return 128 random bits as text; `crypto.randomUUID` is missing where a page came without TLS. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Say whether an answer was made before the last write: workers see those of others a moment later. */
function isBehind({ ok, content, error }) {
  return ok ? content.version?.data < written : written > 0 && error.code === "unknown_row";
}

async function send(method, path, body, action, signal) {
  const headers = { Accept: "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (action) headers["Idempotency-Key"] = action;
  const request = { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) };
  let response;
  let text;
  try {
    response = await fetch(path, request);
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { ok: false, status: 0, error: new ServiceError(0, "no_answer", "The service does not answer.") };
  }
  const content = parse(text);
  if (response.ok && content !== null) return { ok: true, content };
  const said = content?.error ?? { code: "no_answer", message: `The service sent the status ${response.status}, and no reason.` };
  const wait = response.headers.has("Retry-After") ? 1000 * Number(response.headers.get("Retry-After")) : null;
  return { ok: false, status: response.status, error: new ServiceError(response.status, said.code, said.message), wait };
}

/** Return parsed JSON, with all ids as text: whole numbers of 64 bits do not fit into those of JavaScript. */
function parse(text) {
  try {
    return JSON.parse(text, (name, value, context) =>
      IDS.has(name) && typeof value === "number" ? (context?.source ?? String(value)) : value,
    );
  } catch {
    return null;
  }
}

/** Ask for a key, once for all requests that wait for it. */
async function newKey(reason) {
  const isFirst = sessionStorage.getItem(KEY) === null;
  keyAsked ??= askForKey(isFirst ? "This service requires an API key." : reason).finally(() => (keyAsked = null));
  sessionStorage.setItem(KEY, await keyAsked);
}

function pause(wait, signal) {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, wait);
    signal?.addEventListener("abort", () => reject(signal.reason));
  });
}
