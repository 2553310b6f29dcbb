// Lanes and their marks: what is drawn, from rows of all kinds, in columns.

// What a mark is: how it looks, in which row of its lane, and what is drawn over what.
const LOOKS = [
  { name: "committed", row: 1, color: "--committed" },
  { name: "aborted", row: 2, color: "--aborted", hatch: true },
  { name: "unknown", row: 2, color: "--unread", hatch: true },
  { name: "epoch", row: 0, color: "--soft", tick: true },
  { name: "note", row: 4, color: "--mild", outline: true },
  { name: "suspected", row: 4, color: "--suspected", hatch: true },
  { name: "proved", row: 4, color: "--proved" },
  { name: "torn", row: 4, color: "--bad", hatch: true },
  { name: "commit", row: 5, color: "--commit", triangle: true },
  { name: "warning", row: 4, color: "--doubtful" },
  { name: "open", row: 3, color: "--open", hatch: true },
  { name: "hanging", row: 3, color: "--open" },
  { name: "error", row: 4, color: "--bad" },
  { name: "state-Empty", row: 6, color: "--empty" },
  { name: "state-Ongoing", row: 6, color: "--ongoing" },
  { name: "state-PrepareCommit", row: 6, color: "--prepare" },
  { name: "state-PrepareAbort", row: 6, color: "--prepare", hatch: true },
  { name: "state-CompleteCommit", row: 6, color: "--committed" },
  { name: "state-CompleteAbort", row: 6, color: "--aborted", hatch: true },
  { name: "state-other", row: 6, color: "--unread", hatch: true },
  { name: "event", row: 5, color: "--bad", triangle: true },
  { name: "deadline", row: 5, color: "--doubtful", triangle: true },
  { name: "kept", row: 6, color: "--volume", hatch: true },
  { name: "session", row: 6, color: "--volume" },
  { name: "expired", row: 6, color: "--unread", hatch: true },
  { name: "leader", row: 6, color: "--committed", label: true },
  { name: "no-leader", row: 6, color: "--bad", hatch: true },
  { name: "unclean", row: 6, color: "--bad", label: true },
  { name: "under-min-isr", row: 6, color: "--doubtful", label: true },
  { name: "up", row: 6, color: "--committed" },
  { name: "fenced", row: 6, color: "--doubtful", hatch: true },
  { name: "gone", row: 6, color: "--unread", hatch: true },
];
const LOOK = Object.fromEntries(LOOKS.map((each, place) => [each.name, place]));
// Heights of the rows of a lane: volume, committed, aborted, open, findings; then what is drawn over
// the volume, and the one row of all other lanes. A row without a mark takes no room.
const TALL = [24, 6, 6, 7, 9], OVER = 5, ALONE = 6, LEAST = 28;
const BESIDE = 2; // pixels on either side of a canvas, for what begins or ends there
const TITLES = {
  partition: "Partitions", broker: "Brokers", leader: "Leaders and ISR of partitions",
  id: "Transactional ids", producer: "Producer ids",
};

// Marks of a lane in columns: a million of them are four arrays, not a million objects.
class Marks {
  constructor() { this.raw = []; }
  add(look, table, row, t0, t1, o0, o1, label) {
    this.raw.push([LOOK[look], table, row, t0, t1, o0, o1, label]);
  }
  finish() {
    this.raw.sort((a, b) => a[0] - b[0] || (a[5] ?? a[3] ?? 0) - (b[5] ?? b[3] ?? 0));
    const count = (this.count = this.raw.length);
    this.look = Uint8Array.from(this.raw, (each) => each[0]);
    this.spans = []; // of each look, in the order of drawing
    for (let begin = 0, at = 1; at <= count; at++) {
      if (at < count && this.look[at] === this.look[begin]) continue;
      this.spans.push([this.look[begin], begin, at]);
      begin = at;
    }
    this.at = {};
    for (const [axis, first] of [["time", 3], ["offset", 5]]) {
      const left = new Float64Array(count), right = new Float64Array(count);
      this.raw.forEach((each, place) => {
        left[place] = each[first] ?? NaN;
        right[place] = Math.max(each[first + 1] ?? left[place], left[place]);
      });
      this.at[axis] = [left, right];
    }
    this.row = Int32Array.from(this.raw, (each) => each[2]);
    this.table = this.raw.map((each) => each[1]);
    this.label = this.raw.some((each) => each[7]) ? this.raw.map((each) => each[7]) : null;
    this.raw = null;
  }
}

let tables, lanes, now;
const view = { axis: "time", from: 0, to: 1, selected: null };
const range = { first: 0, last: 1 }; // of all times

function build(data) {
  now = data.now;
  tables = {};
  for (const [kind, each] of Object.entries(data.tables)) tables[kind] = new Table(kind, each);
  lanes = data.lanes.map((each) => ({ ...each, marks: new Marks(), lines: each.marks, volume: {} }));
  const byKey = (kind) => new Map(lanes.filter((e) => e.kind === kind).map((e) => [e.key, e]));
  const partitions = byKey("partition");
  fillVolume(partitions);
  fillTransactions(partitions);
  fillPlaces(partitions);
  fillStates(byKey("id"));
  fillSessions(byKey("producer"));
  fillChanges(byKey("leader"), byKey("broker"));
  let first = Infinity, last = -Infinity;
  const reach = (from, to) => { first = Math.min(first, from); last = Math.max(last, to); };
  for (const lane of lanes) {
    for (const each of lane.volume.time || []) reach(each.t0, each.t1);
    lane.marks.finish();
    layRows(lane);
  }
  for (const lane of first > last ? lanes : []) {
    for (const each of lane.marks.at.time[0]) if (each > 0) reach(each, each);
  }
  if (first > last) reach(now - 1000, now);
  const room = (last - first) * 0.03 + 1;
  [range.first, range.last] = [first - room, last + room];
}

// Top and height of each row of a lane.
function layRows(lane) {
  const used = new Set(Array.from(lane.marks.look, (each) => LOOKS[each].row));
  lane.rows = [[0, TALL[0]]];
  let top = TALL[0] + 2;
  for (let row = 1; row < TALL.length; row++) {
    lane.rows.push([top, TALL[row]]);
    top += used.has(row) ? TALL[row] + 1 : 0;
  }
  lane.rows[OVER] = [0, 8];
  lane.rows[ALONE] = [3, 15];
  lane.height = lane.kind === "partition" ? Math.max(top + 2, LEAST) : 21;
}

function fillVolume(partitions) {
  const table = tables.volume;
  for (let row = 0; row < table.count; row++) {
    const lane = partitions.get(table.get("path", row));
    if (!lane) continue;
    const axis = table.get("axis", row);
    (lane.volume[axis] = lane.volume[axis] || []).push({
      t0: table.get("first_timestamp_ms", row), t1: table.get("last_timestamp_ms", row),
      o0: table.get("first_offset", row), o1: table.get("last_offset", row) + 1,
      from: table.get("start", row), to: table.get("end", row),
      bytes: table.get("log_bytes", row), back: table.get("goes_back", row), row,
    });
    lane.last = Math.max(lane.last ?? 0, table.get("last_timestamp_ms", row) ?? 0);
  }
  for (const kind of ["segment", "leader_epoch"]) {
    const found = tables[kind];
    for (let row = 0; row < found.count; row++) {
      const lane = partitions.get(found.get("path", row));
      if (!lane) continue;
      const name = kind === "segment" ? "base_offset" : "first_offset";
      const time = kind === "segment" ? "first_timestamp_ms" : "timestamp_ms";
      const offset = found.get(name, row), at = found.get(time, row);
      lane.marks.add("epoch", kind, row, at, at, offset, offset);
    }
  }
}

function fillTransactions(partitions) {
  const table = tables.transaction;
  for (let row = 0; row < table.count; row++) {
    const lane = partitions.get(table.get("path", row));
    if (!lane) continue;
    const state = table.get("state", row), first = table.get("first_offset", row);
    let last = table.get("last_offset", row) ?? first;
    let from = table.get("first_timestamp_ms", row), to = table.get("last_timestamp_ms", row);
    from = from ?? to;
    if (state === "open") { last = lane.end_offset; to = Infinity; }
    const isLate = /hanging|overdue/.test(table.get("verdict", row));
    lane.marks.add(isLate ? "hanging" : state, "transaction", row, from, to, first, last);
    if (table.get("holds_last_stable_offset", row)) lane.held = { time: from, offset: first };
  }
}

function fillPlaces(partitions) {
  const findings = tables.finding;
  for (let row = 0; row < findings.count; row++) {
    const lane = partitions.get(findings.get("path", row));
    if (!lane) continue;
    lane.findings = lane.findings || { error: 0, warning: 0, note: 0 };
    const severity = findings.get("severity", row);
    lane.findings[severity] += 1;
    const first = findings.get("base_offset", row) ?? findings.get("last_offset", row);
    const last = findings.get("last_offset", row);
    // What has no time of its own stands at the end: it was found then.
    const time = findings.get("timestamp_ms", row) ?? lane.last ?? now;
    const offset = first ?? lane.first_offset;
    lane.marks.add(severity, "finding", row, time, time, offset, last === null ? offset : last + 1);
  }
  // In each partition that it is told of; where the offset is not known, at the end.
  const torn = tables.torn_transaction, where = ["committed_in", "aborted_in", "open_in", "without_marker"];
  for (let row = 0; row < torn.count; row++) {
    const own = `${torn.get("topic", row)}-${torn.get("partition", row)}`;
    const names = new Set([own, ...where.flatMap((each) => torn.get(each, row))]);
    for (const lane of partitions.values()) {
      const offset = lane.title === own ? torn.get("offset", row) ?? lane.end_offset : lane.end_offset;
      const time = lane.last ?? now;
      if (names.has(lane.title)) lane.marks.add("torn", "torn_transaction", row, time, time, offset, offset);
    }
  }
  const doubled = tables.duplicate;
  for (let row = 0; row < doubled.count; row++) {
    const lane = partitions.get(doubled.get("path", row));
    if (!lane) continue;
    const time = doubled.get("repeat_timestamp_ms", row);
    lane.marks.add(doubled.get("kind", row), "duplicate", row, time, time,
      doubled.get("repeat_base_offset", row), doubled.get("repeat_last_offset", row) + 1);
  }
  const commits = tables.commit;
  for (let row = 0; row < commits.count; row++) {
    const lane = partitions.get(commits.get("path", row));
    const offset = commits.get("committed_offset", row);
    if (!lane || offset === null) continue;
    const time = commits.get("commit_timestamp_ms", row);
    lane.marks.add("commit", "commit", row, time, time, offset, commits.get("log_end_offset", row));
  }
}

function fillStates(ids) {
  const table = tables.id_state;
  let lane = null, before = null;
  for (let row = 0; row < table.count; row++) {
    const found = ids.get(table.get("transactional_id", row));
    if (found !== lane) { lane = found; before = null; }
    if (!lane) continue;
    const time = table.get("timestamp_ms", row), status = table.get("status", row);
    if (before) before[4] = Math.max(time ?? before[3], before[3]);
    const look = `state-${status}` in LOOK ? `state-${status}` : "state-other";
    const due = table.get("due_at_ms", row), isNewest = row + 1 === table.count
      || table.get("transactional_id", row + 1) !== table.get("transactional_id", row);
    if (table.get("event", row)) lane.marks.add("event", "id_state", row, time, time, null, null);
    if (due !== null && isNewest) lane.marks.add("deadline", "id_state", row, due, due, null, null);
    lane.marks.add(look, "id_state", row, time, Infinity, null, null);
    before = lane.marks.raw[lane.marks.raw.length - 1];
  }
}

function fillSessions(producers) {
  const table = tables.producer;
  for (let row = 0; row < table.count; row++) {
    const lane = producers.get(String(table.get("producer_id", row)));
    if (!lane) continue;
    const first = table.get("first_timestamp_ms", row), last = table.get("last_timestamp_ms", row);
    const expires = table.get("expires_at_ms", row);
    lane.marks.add("kept", "producer", row, last, expires, null, null);
    lane.marks.add("session", "producer", row, first, last, null, null);
    if (table.get("is_expired", row)) lane.marks.add("expired", "producer", row, expires, expires, null, null);
  }
}

function fillChanges(leaders, brokers) {
  const table = tables.change, ends = new Map();
  for (let row = 0; row < table.count; row++) {
    const what = table.get("what", row), time = table.get("timestamp_ms", row);
    const lane = what === "partition"
      ? leaders.get(`${table.get("topic", row)}-${table.get("partition", row)}`)
      : brokers.get(String(table.get("broker", row)));
    if (!lane) continue;
    const before = ends.get(lane);
    if (before) before[4] = Math.max(time ?? before[3], before[3]);
    const text = table.get("text", row), leader = table.get("leader", row);
    let look = "up", label = "";
    if (what === "partition") {
      look = leader === null ? "gone" : leader < 0 ? "no-leader"
        : table.get("is_unclean", row) ? "unclean"
          : table.get("is_under_min_isr", row) ? "under-min-isr" : "leader";
      const elr = table.get("elr", row);
      label = `${leader} [${table.get("isr", row)}]${elr ? ` ELR ${elr}` : ""}`;
      if (leader === null || leader < 0) label = text + (elr ? `, ELR ${elr}` : "");
    } else if (/unregistered/.test(text)) look = "gone";
    else if (/(^|, )fenced|registered|shutdown/.test(text)) look = "fenced";
    lane.marks.add(look, "change", row, time, Infinity, null, null, label);
    ends.set(lane, lane.marks.raw[lane.marks.raw.length - 1]);
  }
}
