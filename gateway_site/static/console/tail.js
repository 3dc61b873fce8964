"use strict";

/*
 * Shows requests as they end. The socket only brings: rows that may be here already, and notes. What names and
 * models say is put into the page as text only.
 */
(() => {
  const root = document.getElementById("tail");
  if (!root) return;

  const $ = (name) => document.getElementById(`tail-${name}`);
  const NO_UUID = "00000000-0000-0000-0000-000000000000";
  const MOST_ROWS = 200;
  // The other side says something every 15 seconds.
  const SILENCE_MS = 40000;
  const NOTE_MS = 10000;
  const FIRST_WAIT_MS = 1000;
  const LONGEST_WAIT_MS = 30000;
  const NOT_ALLOWED = 4403;
  const TOO_MANY = 4429;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  let rows = []; // the newest first
  const known = new Map(); // by id, the row of the table
  let isPaused = false;
  let arrived = 0; // while paused
  let skipped = 0;
  let waitMs = FIRST_WAIT_MS;
  let watchdog = 0;
  let noteTimer = 0;

  // --- the table -------------------------------------------------------------------------------

  function cell(label, lines, className) {
    const made = document.createElement("td");
    made.dataset.label = label;
    if (className) made.className = className;
    for (const [index, line] of lines.entries()) {
      const shown = document.createElement(index ? "small" : "span");
      shown.append(line);
      made.append(shown);
    }
    return made;
  }

  function ago(when) {
    const seconds = Math.max(0, Math.round((Date.now() - when) / 1000));
    for (const [name, size] of units) if (seconds >= size) return `${Math.floor(seconds / size)} ${name} ago`;
    return "now";
  }

  const utc = (when) => `${when.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const figure = (value, unit = "") => (value === null ? "–" : `${value.toLocaleString("en-US")}${unit}`);

  function tokens(row) {
    if (row.prompt_tokens === null) return ["–"];
    return [`${figure(row.prompt_tokens)} in`, `${figure(row.completion_tokens)} out`];
  }

  function badge(row) {
    const looks = { 2: "ok", 4: "warning", 5: "danger" };
    const made = document.createElement("span");
    made.className = `live-badge live-badge-${looks[Math.floor(row.status / 100)] || "quiet"}`;
    made.textContent = row.status;
    return made;
  }

  function receiptLink(row) {
    const made = document.createElement("a");
    made.className = "live-link";
    made.href = root.dataset.receipt.replace(NO_UUID, row.id);
    made.title = row.id;
    const short = document.createElement("code");
    short.textContent = row.id.slice(0, 8);
    made.append(short);
    return made;
  }

  function tableRow(row) {
    const made = document.createElement("tr");
    const when = cell("Ended", [utc(row.when), ago(row.when)], "live-when");
    made.append(
      when,
      cell("Request", [receiptLink(row)]),
      cell("Project and key", [`${row.organization} / ${row.project}`, `${row.key} ${row.key_value}`], "live-names"),
      cell("Model", [row.model || "–"]),
      cell("Status", row.code ? [badge(row), row.code] : [badge(row)]),
      cell("Tokens", tokens(row), "live-number"),
      cell("Cost", [row.cost === null ? "–" : row.cost], "live-number"),
      cell("First token, total", [figure(row.first_token_ms, " ms"), figure(row.total_ms, " ms")], "live-number"),
    );
    return made;
  }

  function isWanted(row) {
    const status = $("status").value;
    const text = $("text").value.trim().toLowerCase();
    return (!status || String(row.status).startsWith(status)) && (!text || row.haystack.includes(text));
  }

  function show() {
    if (isPaused) return;
    const wanted = rows.filter(isWanted);
    const body = $("rows");
    body.replaceChildren(...wanted.map((row) => known.get(row.id)));
    $("empty").hidden = wanted.length > 0;
    $("empty").textContent = rows.length
      ? "None of the latest requests is like that."
      : "Nothing yet. Requests appear here about a second after they end.";
  }

  function add(brought) {
    let news = 0;
    for (const row of brought) {
      if (known.has(row.id)) continue;
      row.when = new Date(row.ended_at);
      row.haystack = [row.organization, row.project, row.key, row.key_value, row.model].join("\n").toLowerCase();
      known.set(row.id, tableRow(row));
      rows.push(row);
      news += 1;
    }
    if (!news) return;
    rows.sort((a, b) => b.when - a.when);
    for (const row of rows.splice(MOST_ROWS)) known.delete(row.id);
    if (isPaused) arrived += news;
    showPause();
    show();
  }

  function age() {
    if (isPaused) return;
    for (const row of rows) known.get(row.id).querySelector(".live-when small").textContent = ago(row.when);
  }

  // --- what is said about it -------------------------------------------------------------------

  function showState(text, look) {
    $("state").textContent = text;
    $("state").className = `live-badge live-badge-${look}`;
  }

  function showNote(text, ms = 0) {
    clearTimeout(noteTimer);
    $("note").textContent = text;
    $("note").hidden = !text;
    if (ms) noteTimer = setTimeout(showNote, ms, "");
  }

  function showNotes(notes) {
    skipped += notes.skipped;
    if (notes.has_trouble) showNote("The database does not answer; trying again every second.", NOTE_MS);
    else if (notes.has_gap) showNote("There are more requests than can be shown: the newest of each second are.", NOTE_MS);
    else if (notes.skipped) showNote(`${skipped} skipped: this page could not keep up.`, NOTE_MS);
  }

  function showPause() {
    $("pause").textContent = isPaused ? (arrived ? `Resume (${arrived} new)` : "Resume") : "Pause";
  }

  // --- the socket ------------------------------------------------------------------------------

  function connect() {
    const address = new URL(root.dataset.socket, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    let hasOpened = false;
    const feed = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => socket.close(), SILENCE_MS);
    };
    feed();
    socket.addEventListener("open", () => {
      hasOpened = true;
      showState(isPaused ? "paused" : "live", isPaused ? "quiet" : "ok");
    });
    socket.addEventListener("message", (event) => {
      feed();
      waitMs = FIRST_WAIT_MS;
      const told = JSON.parse(event.data);
      showNotes(told.notes);
      add(told.rows);
    });
    socket.addEventListener("close", (event) => {
      clearTimeout(watchdog);
      closed(event, hasOpened);
    });
  }

  async function closed(event, hasOpened) {
    if (event.code === NOT_ALLOWED) return giveUp("You may not watch any more. Reload the page to log in.");
    if (event.code === TOO_MANY) return giveUp("Too many live tails are open. Close another, then reload this page.");
    showState("reconnecting", "warning");
    // A socket that is refused says nothing of why; the page itself would.
    if (!hasOpened && (await isRefused())) return giveUp("You are logged out. Reload the page to log in.");
    setTimeout(connect, waitMs * (0.75 + Math.random() / 2));
    waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
  }

  async function isRefused() {
    try {
      const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
      return answer.type === "opaqueredirect" || answer.status === 403;
    } catch {
      return false;
    }
  }

  function giveUp(text) {
    showState("stopped", "danger");
    showNote(text);
  }

  $("pause").addEventListener("click", () => {
    isPaused = !isPaused;
    arrived = 0;
    showPause();
    if ($("state").textContent === "live" || $("state").textContent === "paused") {
      showState(isPaused ? "paused" : "live", isPaused ? "quiet" : "ok");
    }
    show();
    age();
  });
  $("status").addEventListener("change", show);
  $("text").addEventListener("input", show);
  setInterval(age, 5000);
  connect();
})();
