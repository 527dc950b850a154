// The page of a controller. It asks for what is new at each event of the server, and at least every ten seconds.
import { $, list, make, ms, percent, rate, setText, share, time } from "./dom.js";
import * as charts from "./charts.js";

const perPage = 50, mostPoints = 4096, mostMarks = 500, shownMarks = 50;
const state = { generation: 0, points: [], marks: [], offset: 0, minutes: 0, by: "", searching: false };

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
  return answer.json();
}

async function post(path, value) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

let asking = false, again = false;

// refresh asks for what is new. Events that arrive meanwhile lead to one more question.
async function refresh() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    do {
      again = false;
      const offset = state.offset, last = state.points.at(-1)?.at ?? 0, mark = state.marks.at(-1)?.id ?? 0;
      take(await get(`page/now?${new URLSearchParams({ generation: state.generation, after: last, mark, find: $("find").value,
        offset, limit: perPage })}`), offset);
      setText($("link"), "");
    } while (again);
  } catch (error) {
    if (error.status === 401) {
      $("login").hidden = false;
      $("content").hidden = true;
    } else {
      setText($("link"), "No answer from the controller; the balancer keeps the last shares. Trying again. " +
        (error.status ? error.message : ""));
    }
  } finally {
    asking = false;
  }
}

function take(now, offset) {
  if (now.whole) state.points = now.points;
  else state.points = state.points.concat(now.points);
  if (now.whole || now.generation !== state.generation) state.marks = now.marks;
  else state.marks = state.marks.concat(now.marks).slice(-mostMarks);
  state.generation = state.points.length > mostPoints ? 0 : now.generation; // 0: the next answer has all points, fewer of them
  state.by = now.by ?? "";
  const first = $("content").hidden;
  $("login").hidden = true;
  $("content").hidden = false;
  if (first) charts.build();
  group(now.group);
  table(now.table, offset);
  drawCharts();
  if (!state.searching) journal(state.marks.slice(-shownMarks).reverse());
}

const drawCharts = () => charts.draw(state.points, state.marks, state.minutes, openMark);

function group(g) {
  document.title = `${g.service}: ${g.level} – Quell`;
  setText($("service"), g.service);
  $("now").dataset.level = g.level;
  setText($("headline"), g.headline);
  noisy(g);
  list($("over"), (g.over ?? []).map((o) => `${o.id}: over since ${time(o.until)}, after ${span((o.until - o.since) / 1000)}. Last seen: ${o.what}.`));
  setText($("acting"), g.acting);
  setText($("load"), g.load);
  list($("problems"), g.problems);
  list($("why"), g.reasons.map((r) => `${r.code}: ${r.text}`).concat(g.learned.map((text) => "learning: " + text)));
  $("pause").hidden = !state.by || g.paused;
  $("resume").hidden = !state.by || !g.resumable;
  $("release").hidden = !state.by;
  $("logout").hidden = !state.by;
  fast(g.fast);
  tenants(g);
  $("credits").hidden = !g.credits;
  list($("balances"), (g.credits ?? []).map(balance));
  setText($("by"), state.by ? "logged in as " + state.by : "read only; to act, run quell page");
}

// noisy names the instances that something else than their requests slows: by what, since when, and what is to be done.
function noisy(g) {
  const element = $("noisy"), all = g.noisy ?? [];
  const items = all.map((n) => {
    const old = [...element.children].find((item) => item.dataset.id === n.id);
    const item = old ?? make("li");
    if (!old) {
      item.dataset.id = n.id;
      const open = make("button", n.id);
      open.addEventListener("click", () => openStory(n.id));
      item.append(open, make("strong"), make("p"));
    }
    const since = n.once ? ", seen once so far" : n.since ? `, since ${time(n.since)} (${span((g.at - n.since) / 1000)})` : "";
    setText(item.children[1], `: ${n.what}${since}.`);
    setText(item.children[2], [n.costs, n.done, n.do].filter(Boolean).join(" "));
    return item;
  });
  if (g.more_noisy) items.push(make("li", `and ${g.more_noisy} more, in the table below`));
  if (items.length !== element.children.length || items.some((item, i) => element.children[i] !== item)) {
    const focused = document.activeElement;
    element.replaceChildren(...items);
    if (element.contains(focused)) focused.focus();
  }
}

// fast shows what the fast policy does.
function fast(f) {
  $("fast").hidden = !f;
  if (!f) return;
  setText($("fast-title"), `Fast policy ${f.policy}`);
  list($("cuts"), f.cuts.length ? f.cuts.map((c) => `${c.id} gets ${percent(c.left)} of its share`) : ["no share is cut"]);
  list($("fast-why"), f.reasons.map((r) => (r.instance ? r.instance + ", " : "") + r.code + ": " + r.text));
}

// tenants shows how agents' own policies divide machines among control groups.
function tenants(g) {
  const machines = g.divided ?? [], all = g.tenants ?? [];
  $("tenants").hidden = machines.length === 0;
  list($("divided"), machines.flatMap((m) => {
    const used = m.used === undefined ? "" : `, ${m.used.toFixed(2)} of ${count(m.cores)} processors in use`;
    const steal = m.steal === undefined ? "" : `, ${(100 * m.steal).toFixed(1)}% stolen by other machines`;
    return [`${m.id}: divided by ${m.policy}${used}${steal}${m.why ? ": " + m.why : ""}`,
      ...(m.problems ?? []).map((text) => `${m.id}: ${text}`)];
  }));
  const texts = all.map((t) => [t.id, t.name, t.idle ? "idle" : two(t.slowdown), two(t.processors), two(t.wanted),
    t.waits === undefined ? "–" : percent(t.waits), limits(t), t.favour === "favoured" ? "more" : t.favour === "held back" ? "less" : "its share",
    t.why ?? ""]);
  const body = $("tenant-rows");
  while (body.children.length > texts.length) body.lastChild.remove();
  texts.forEach((row, i) => {
    if (!body.children[i]) {
      body.append(make("tr"));
      body.children[i].append(...row.map((_, k) => make("td", "", k >= 2 && k <= 6 ? { class: "n" } : {})));
    }
    body.children[i].dataset.favour = all[i].favour ?? "";
    row.forEach((text, k) => setText(body.children[i].children[k], text));
  });
  setText($("more-tenants"), g.more_tenants ? `and ${g.more_tenants} more, which are slowed down less` : "");
}

const two = (v) => (v === undefined ? "–" : v.toFixed(2));
const count = (v) => (v === undefined ? "?" : Number(v.toFixed(2)).toString());

// limits says what is set for a tenant: its weight, the processors that it may use at most, or both.
function limits(t) {
  const parts = [t.weight === undefined ? "" : "weight " + two(t.weight), t.cap === undefined ? "" : "cap " + two(t.cap)].filter(Boolean);
  return parts.join(", ") || "none";
}

// balance says how many credits an instance has, and how long they last.
function balance(c) {
  const range = c.low < c.high ? ` (${c.low.toFixed(1)} to ${c.high.toFixed(1)})` : "";
  const gone = c.gone_s === undefined ? "they last at this use" : c.gone_s < 1 ? "used up" : `gone in ${span(c.gone_s)} at this use`;
  return `${c.id}, ${c.resource}: ${c.left.toFixed(1)} left${range}, ${gone}`;
}

function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function table(t, asked) {
  if (state.offset === asked) state.offset = t.offset; // else somebody has turned the page meanwhile
  const body = $("rows"), old = new Map([...body.children].map((row) => [row.dataset.id, row]));
  const rows = t.rows.map((r) => fill(old.get(r.id) ?? emptyRow(r.id), r));
  if (rows.length !== body.children.length || rows.some((row, i) => body.children[i] !== row)) {
    const focused = document.activeElement;
    body.replaceChildren(...rows);
    if (body.contains(focused)) focused.focus();
  }
  setText($("shown"), t.found === 0 ? (t.total === 0 ? "no instances yet" : "none found") :
    `${t.offset + 1} to ${t.offset + t.rows.length} of ${t.found}` + (t.found < t.total ? ` found among ${t.total}` : "") +
    ", those that need attention first");
  $("earlier").hidden = t.offset === 0;
  $("later").hidden = t.offset + t.rows.length >= t.found;
}

const columns = ["", "state", "n ms", "n", "n", "n", "n", "n wide", ""];

function emptyRow(id) {
  const row = make("tr");
  row.dataset.id = id;
  row.append(...columns.map((name) => make("td", undefined, name ? { class: name } : {})));
  const open = make("button", id);
  open.addEventListener("click", () => openStory(id));
  row.children[0].append(open);
  return row;
}

function fill(row, r) {
  row.dataset.concern = r.concern;
  const texts = [r.state, ms(r.ms), share(r.share ?? r.now), share(r.would), rate(r.rate), rate(r.can_take), ms(r.expected_ms),
    r.shade ? `${percent(r.shade.share)} of ${r.shade.resource}` : "–"];
  texts.forEach((text, i) => setText(row.children[i + 1], text));
  return row;
}

const kinds = { change: "done", advice: "advice", event: "event" };

function entry(m) {
  const details = make("details");
  details.dataset.id = m.id;
  const summary = make("summary");
  summary.append(make("time", time(m.at), { datetime: new Date(m.at).toISOString() }), make("span", kinds[m.kind] ?? m.kind,
    { class: "kind" }), make("span", m.text));
  const lines = [...(m.changes ?? []), ...(m.why ? ["not done: " + m.why] : []),
    ...(m.reasons ?? []).map((r) => (r.instance ? r.instance + ", " : "") + r.code + ": " + r.text)];
  const items = make("ul");
  items.append(...(lines.length ? lines : [m.text]).map((text) => make("li", text)));
  details.append(summary, items);
  return details;
}

function journal(marks) {
  const element = $("journal"), old = new Map([...element.children].map((d) => [d.dataset.id, d]));
  const entries = marks.map((m) => old.get(String(m.id)) ?? entry(m));
  if (entries.length !== element.children.length || entries.some((e, i) => e !== element.children[i])) {
    const focused = document.activeElement;
    element.replaceChildren(...entries);
    if (element.contains(focused)) focused.focus();
  }
  if (!state.searching) setText($("found"), marks.length ? "" : "nothing was decided yet");
}

function openMark(id) {
  endSearch();
  journal(state.marks.slice(-mostMarks).reverse());
  for (const details of $("journal").children) {
    const chosen = details.dataset.id === String(id);
    details.classList.toggle("chosen", chosen);
    if (chosen) {
      details.open = true;
      details.scrollIntoView({ block: "center" });
      details.firstChild.focus();
    }
  }
}

function endSearch() {
  if (!state.searching) return;
  state.searching = false;
  $("live").hidden = true;
  $("journal").replaceChildren();
  journal(state.marks.slice(-shownMarks).reverse());
}

async function search(event) {
  event.preventDefault();
  setText($("found"), "searching …");
  try {
    const answer = await get(`page/journal?${new URLSearchParams({ find: $("text").value, hours: $("hours").value })}`);
    state.searching = true;
    $("live").hidden = false;
    $("journal").replaceChildren(...answer.marks.map(entry));
    setText($("found"), answer.marks.length === 0 ? "nothing found" : (answer.more ? "the newest " : "") + `${answer.marks.length} found`);
  } catch (error) {
    setText($("found"), error.message);
  }
}

function term(items, name, value) {
  if (value !== undefined && value !== null && value !== "" && value !== "–") items.append(make("dt", name), make("dd", value));
}

// openStory shows what is known of one instance.
async function openStory(id) {
  const dialog = $("story");
  let story;
  try {
    story = await get(`page/instance?${new URLSearchParams({ id })}`);
  } catch (error) {
    setText($("link"), error.message);
    return;
  }
  const { row, instance } = story;
  const close = make("button", "Close", { "aria-label": "Close " + id });
  close.addEventListener("click", () => dialog.close());
  const bar = make("div", undefined, { class: "bar" });
  bar.append(make("h2", id, { id: "story-title" }), close);
  const facts = make("dl");
  term(facts, "state", row.state);
  term(facts, "address", instance.address);
  term(facts, "response time", `${ms(row.ms)}, predicted ${ms(row.expected_ms)}, objective ${story.slo}`);
  term(facts, "requests", `${rate(row.rate)} of ${rate(row.can_take)} that it can take`);
  term(facts, "share", `${share(row.share)} of the requests; weight ${share(row.now)}, policy wants ${share(row.would)}`);
  if (story.override !== undefined) term(facts, "set by hand", share(story.override));
  term(facts, "limited by", row.limiter);
  if (instance.cut !== undefined) term(facts, "fast policy", "cut to " + percent(instance.cut));
  for (const [resource, x] of Object.entries(instance.interference ?? {})) {
    term(facts, "neighbours on " + resource, [x.hidden !== undefined ? `use ${percent(x.hidden)}` : "", x.severity !== undefined ?
      `probes take ${percent(x.severity)} longer` : "", x.use !== undefined ? `own use ${percent(x.use)}` : "", x.origin ?? ""]
      .filter(Boolean).join(", "));
  }
  for (const [cause, value] of Object.entries(instance.waits ?? {})) {
    if (typeof value === "number") term(facts, "waits for processors, " + cause, percent(value));
  }
  for (const [resource, c] of Object.entries(instance.credits ?? {})) {
    term(facts, resource + " credits", `${c.left.toFixed(1)} (${c.low.toFixed(1)} to ${c.high.toFixed(1)})` +
      (c.depleted_s !== undefined ? `, gone in ${span(c.depleted_s)} at this use` : ""));
  }
  for (const [resource, v] of Object.entries(instance.limits ?? {})) term(facts, "limit on " + resource, String(v));
  for (const [name, v] of Object.entries(instance.settings ?? {})) term(facts, name, String(v));
  for (const [resource, why] of Object.entries(instance.probe_failed ?? {})) term(facts, "no probes of " + resource, why);
  const why = make("ul");
  why.append(...story.reasons.map((r) => make("li", `${r.code}: ${r.text}`)));
  const past = make("div");
  past.append(...story.marks.slice(0, 30).map(entry));
  dialog.replaceChildren(bar, facts, commands(id, row, story), make("h3", "Why"), story.reasons.length ? why : make("p", "no reasons now"),
    make("h3", "Decisions about it"), story.marks.length ? past : make("p", "none in the hours shown"));
  if (!dialog.open) dialog.showModal();
}

// commands are the buttons for one instance; words say how to get them.
function commands(id, row, story) {
  const bar = make("div", undefined, { class: "bar" });
  if (!state.by) {
    bar.append(make("p", "To drain it or to set its share, log in: run quell page.", { class: "quiet" }));
    return bar;
  }
  const button = (text, question, command) => {
    const b = make("button", text);
    b.addEventListener("click", () => confirm(question, text, { ...command(), instance: id }, () => openStory(id)));
    bar.append(b);
  };
  if (row.held) button("Undrain", `Put ${id} back in rotation?`, () => ({ name: "undrain" }));
  else button("Drain", `Take ${id} out of rotation until somebody undrains it?`, () => ({ name: "drain" }));
  if (story.override !== undefined) button("Clear override", `Let the policy set the share of ${id} again?`, () => ({ name: "clear" }));
  const label = make("label", "share in % ");
  const input = make("input", undefined, { type: "number", min: "0", max: "100", step: "any", value: (100 * (row.now ?? 0)).toFixed(1) });
  label.append(input);
  bar.append(label);
  const set = make("button", "Set share");
  set.addEventListener("click", () => {
    const weight = Number(input.value) / 100;
    if (input.value === "" || !(weight >= 0 && weight <= 1)) { input.focus(); input.reportValidity(); return; }
    confirm(`Give ${id} ${input.value}% of the requests until somebody clears it?`, "Set share", { name: "override", instance: id, weight },
      () => openStory(id));
  });
  bar.append(set);
  return bar;
}

// confirm asks before a command is sent, and shows why it was refused.
function confirm(question, text, command, done) {
  const dialog = $("confirm");
  setText($("confirm-text"), question);
  setText($("confirm-error"), "");
  setText($("yes"), text);
  $("yes").onclick = async () => {
    $("yes").disabled = true;
    try {
      await post("page/command", command);
      dialog.close();
      done();
      refresh();
    } catch (error) {
      setText($("confirm-error"), error.message);
    } finally {
      $("yes").disabled = false;
    }
  };
  $("no").onclick = () => dialog.close();
  dialog.showModal();
  $("no").focus();
}

// logIn uses the ticket in the address, and takes it out of the address.
async function logIn() {
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (!ticket) return;
  history.replaceState(null, "", location.pathname);
  try {
    await post("page/login", { ticket });
  } catch (error) {
    setText($("link"), error.message);
  }
}

function listen() {
  const events = new EventSource("page/events");
  events.onmessage = refresh;
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 10000); // the server refused: too many wait, or nobody is logged in
  };
}

$("find").addEventListener("input", () => { state.offset = 0; refresh(); });
$("earlier").addEventListener("click", () => { state.offset = Math.max(0, state.offset - perPage); refresh(); });
$("later").addEventListener("click", () => { state.offset += perPage; refresh(); });
$("search").addEventListener("submit", search);
$("live").addEventListener("click", endSearch);
$("pause").addEventListener("click", () => confirm("Stop acting on decisions? What is in force stays.", "Pause", { name: "pause" }, () => {}));
$("resume").addEventListener("click", () => confirm("Act on decisions again?", "Resume", { name: "resume" }, () => {}));
$("release").addEventListener("click", () => confirm("Put weights, limits and settings back as they were before Quell, and change nothing until "
  + "somebody resumes?", "Release", { name: "release" }, () => {}));
$("logout").addEventListener("click", async () => { await post("page/logout", {}); refresh(); });
for (const button of $("ranges").children) {
  button.addEventListener("click", () => {
    state.minutes = Number(button.dataset.minutes);
    for (const other of $("ranges").children) other.setAttribute("aria-pressed", String(other === button));
    drawCharts();
  });
}
addEventListener("resize", () => { charts.resize(); drawCharts(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { charts.build(); drawCharts(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
addEventListener("hashchange", async () => { await logIn(); refresh(); });
$("all").hidden = location.pathname === "/"; // else it is the page of one service among several
setInterval(refresh, 10000);
await logIn();
await refresh();
listen();
