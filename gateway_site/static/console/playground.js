"use strict";

/*
 * Talks to the customers' endpoint from the page. What models, policies and names say is put into the page as
 * text only, never as markup. Keys stay in `session`: in no storage, no address and no attribute.
 */
(() => {
  const root = document.getElementById("playground");
  if (!root) return;

  const $ = (name) => document.getElementById(`playground-${name}`);
  const token = root.querySelector("[name=csrfmiddlewaretoken]").value;
  const hints = JSON.parse($("hints").textContent);
  const NO_UUID = "00000000-0000-0000-0000-000000000000";
  const RECEIPT_WAITS_MS = [300, 400, 500, 700, 1000, 1500, 2500, 4000, 6000];
  // Monitoring policies judge after the answer.
  const VERDICT_WAITS_MS = [1000, 2000, 4000, 8000];

  let messages = [];
  let session = null; // {project, value}
  let running = null; // AbortController

  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function link(text, url) {
    const made = element("a", "live-link", text);
    made.href = url;
    return made;
  }

  // --- the key ---------------------------------------------------------------------------------

  class Refused extends Error {}

  function post(path, fields) {
    const headers = { "X-CSRFToken": token };
    const body = new URLSearchParams(fields);
    return fetch(path, { method: "POST", headers, body, redirect: "manual", keepalive: true });
  }

  const payer = () => root.querySelector("[name=payer]:checked").value;

  async function keyFor(project, isRenewed) {
    if (payer() === "key") {
      const pasted = $("key").value.trim();
      if (!pasted) throw new Refused("Paste a customer key first.");
      return pasted;
    }
    if (isRenewed || session === null || session.project !== project) {
      session = null;
      const answer = await post(root.dataset.session, { project });
      if (answer.type === "opaqueredirect") throw new Refused("You are logged out. Reload the page to log in.");
      if (!answer.ok) throw new Refused(await messageOf(answer));
      session = { project, value: (await answer.json()).value };
    }
    return session.value;
  }

  async function messageOf(answer) {
    const text = await answer.text();
    try {
      const told = JSON.parse(text);
      return told.message || told.error.message;
    } catch {
      return `The console answered with status ${answer.status}. Reload the page.`;
    }
  }

  function endSession() {
    if (session === null) return;
    session = null;
    post(root.dataset.end, {});
  }

  // --- asking ----------------------------------------------------------------------------------

  function question() {
    const system = $("system").value.trim();
    const body = {
      model: $("model").value,
      messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    };
    if ($("temperature").value !== "") body.temperature = Number($("temperature").value);
    if ($("max-tokens").value !== "") body.max_tokens = Number($("max-tokens").value);
    if ($("stream").checked) Object.assign(body, { stream: true, stream_options: { include_usage: true } });
    return body;
  }

  async function ask(body, signal) {
    const project = $("project").value;
    for (const isRenewed of [false, true]) {
      const answer = await fetch(root.dataset.endpoint, {
        method: "POST",
        // The key is the whole credential, as it is for customers.
        credentials: "omit",
        headers: {
          Authorization: `Bearer ${await keyFor(project, isRenewed)}`,
          "Content-Type": "application/json",
        },
        body: JSON.stringify(body),
        signal,
      });
      // The page's own key ends after a while, or when another page of this browser takes one.
      if (answer.status !== 401 || payer() === "key" || isRenewed) return answer;
    }
  }

  async function* recordsOf(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
      }
    }
  }

  async function readStream(answer, turn) {
    for await (const record of recordsOf(answer)) {
      if (record.error) return turn.fail(record.error);
      for (const choice of record.choices) {
        turn.add(choice.delta);
        if (choice.finish_reason) turn.finish = choice.finish_reason;
      }
    }
  }

  async function readAnswer(answer, turn) {
    turn.requestId = answer.headers.get("X-Request-ID");
    const type = answer.headers.get("Content-Type") || "";
    if (!answer.ok) {
      const told = type.startsWith("application/json") ? (await answer.json()).error : null;
      turn.fail(told || { message: `The gateway answered with status ${answer.status}.` }, answer.status);
    } else if (type.startsWith("text/event-stream")) {
      await readStream(answer, turn);
    } else {
      const [choice] = (await answer.json()).choices;
      turn.add(choice.message);
      turn.finish = choice.finish_reason;
    }
  }

  // --- one answer in the page ------------------------------------------------------------------

  class Turn {
    constructor(model) {
      this.began = performance.now();
      this.firstMs = null;
      this.text = "";
      this.finish = "";
      this.error = null;
      this.requestId = null;
      this.box = element("article", "live-turn live-turn-model");
      this.body = element("div", "live-text");
      this.facts = element("dl", "live-facts");
      this.verdicts = element("ul", "live-verdicts");
      this.box.append(element("h3", "live-who", model), this.body, this.facts, this.verdicts);
      this.body.classList.add("live-waiting");
    }

    add(delta) {
      const said = (delta.content || "") + (delta.refusal || "");
      if (this.firstMs === null && (said || delta.reasoning_content)) this.firstMs = performance.now() - this.began;
      if (delta.reasoning_content) this.think(delta.reasoning_content);
      if (said) {
        this.text += said;
        // One node for each piece: to set the whole text again would be slower with every word.
        this.body.append(said);
        follow();
      }
    }

    think(text) {
      if (!this.thoughts) {
        const folded = element("details", "live-thoughts");
        folded.open = true;
        this.thoughts = element("div", "live-text");
        folded.append(element("summary", "", "Reasoning"), this.thoughts);
        this.box.insertBefore(folded, this.body);
      }
      this.thoughts.append(text);
      follow();
    }

    fail(error, status) {
      this.error = error;
      const note = element("p", "live-note live-note-danger", `${status ? `${status}: ` : ""}${error.message}`);
      const hint = Object.keys(hints).find((code) => (error.code || "").startsWith(code));
      if (hint) note.append(" ", link(hints[hint].text, hints[hint].url));
      this.box.insertBefore(note, this.facts);
      if (error.request_id) this.requestId = error.request_id;
    }

    end(isStopped) {
      this.body.classList.remove("live-waiting");
      this.body.normalize();
      if (isStopped) this.box.insertBefore(element("p", "live-note", "Stopped."), this.facts);
      this.seenMs = performance.now() - this.began;
      this.showFacts(null);
      follow();
    }

    showFacts(receipt) {
      const facts = [];
      if (this.requestId) {
        const short = element("code", "", this.requestId.slice(0, 8));
        short.title = this.requestId;
        const shown = receipt ? link("", receipt.url) : element("span");
        shown.append(short);
        facts.push(["Request", shown]);
      }
      if (receipt) facts.push(["Status", receipt.code ? `${receipt.status} ${receipt.code}` : receipt.status]);
      if (this.finish) facts.push(["Finish", this.finish]);
      if (receipt) facts.push(...figures(receipt));
      facts.push(["Seen here", timesOf(this.firstMs, this.seenMs)]);
      this.facts.replaceChildren(...facts.map(fact));
    }

    showVerdicts(verdicts) {
      this.verdicts.replaceChildren(...verdicts.map(verdictItem));
    }

    async fetchReceipt() {
      // A credential that nobody knows has no project, and so no receipt.
      if (!this.requestId || (this.error && this.error.code === "invalid_api_key")) return;
      const path = root.dataset.receipt.replace(NO_UUID, this.requestId);
      const found = await this.poll(path, RECEIPT_WAITS_MS, (receipt) => receipt.is_ready);
      if (found) await this.poll(path, VERDICT_WAITS_MS, () => false);
    }

    async poll(path, waits, isEnough) {
      for (const wait of waits) {
        await pause(wait);
        const answer = await fetch(path, { redirect: "manual" });
        if (!answer.ok || !this.box.isConnected) return false;
        const receipt = await answer.json();
        if (receipt.is_ready) {
          this.showFacts(receipt);
          this.showVerdicts(receipt.verdicts);
          follow();
        }
        if (isEnough(receipt)) return true;
      }
      return false;
    }
  }

  function timesOf(firstMs, totalMs) {
    const total = `${Math.round(totalMs)} ms`;
    return firstMs === null ? total : `${Math.round(firstMs)} ms to the first token, ${total} in all`;
  }

  function figures(receipt) {
    const found = [];
    if (receipt.prompt_tokens !== null) {
      const cached = receipt.cached_tokens ? ` (${receipt.cached_tokens} cached)` : "";
      const thought = receipt.reasoning_tokens ? ` (${receipt.reasoning_tokens} reasoning)` : "";
      found.push(["Tokens", `${receipt.prompt_tokens} in${cached}, ${receipt.completion_tokens} out${thought}`]);
    }
    found.push(["Cost", receipt.cost === null ? "not known yet" : receipt.cost]);
    found.push(["Gateway", timesOf(receipt.first_token_ms, receipt.total_ms)]);
    if (receipt.deployment) found.push(["Deployment", receipt.deployment]);
    return found;
  }

  function fact([name, value]) {
    const pair = element("div");
    const shown = element("dd");
    shown.append(value);
    pair.append(element("dt", "", name), shown);
    return pair;
  }

  function verdictItem(verdict) {
    const item = element("li");
    // What an enforcing policy refuses, a monitoring one only notes.
    const looks = { match: verdict.mode === "enforcing" ? "danger" : "warning", no_match: "ok", inconclusive: "warning" };
    item.append(element("span", `live-badge live-badge-${looks[verdict.outcome]}`, verdict.outcome.replace("_", " ")));
    const score = verdict.score === null ? verdict.reason : `scored ${verdict.score}, matches from ${verdict.threshold}`;
    item.append(
      " ",
      link(verdict.policy, verdict.url),
      ` v${verdict.version}, ${verdict.mode}, of the ${verdict.direction}: ${score} (${verdict.judge}, ${verdict.latency_ms} ms)`,
    );
    return item;
  }

  // --- the conversation ------------------------------------------------------------------------

  // Whether the end is to stay in sight. Who has scrolled up is reading.
  let isFollowing = true;

  function follow() {
    if (isFollowing) $("turns").scrollTop = $("turns").scrollHeight;
  }

  function noteScroll() {
    const turns = $("turns");
    isFollowing = turns.scrollHeight - turns.scrollTop - turns.clientHeight < 40;
  }

  function showSaid(text) {
    const box = element("article", "live-turn live-turn-user");
    box.append(element("h3", "live-who", "You"), element("div", "live-text", text));
    $("turns").append(box);
  }

  function setRunning(controller) {
    running = controller;
    $("send").hidden = controller !== null;
    $("stop").hidden = controller === null;
    $("clear").disabled = controller !== null;
  }

  async function send() {
    const text = $("text").value;
    if (running !== null || !text.trim()) return $("text").focus();
    if (!$("settings").reportValidity()) return;
    messages.push({ role: "user", content: text });
    const turn = new Turn($("model").value);
    $("empty").hidden = true;
    showSaid(text);
    $("turns").append(turn.box);
    isFollowing = true;
    follow();
    $("text").value = "";
    foldSettings();
    setRunning(new AbortController());
    const isStopped = await exchange(turn, running.signal);
    setRunning(null);
    turn.end(isStopped);
    remember(turn, text);
    turn.fetchReceipt();
    $("text").focus();
  }

  async function exchange(turn, signal) {
    try {
      await readAnswer(await ask(question(), signal), turn);
    } catch (error) {
      if (signal.aborted) return true;
      const isRefusal = error instanceof Refused;
      turn.fail({ message: isRefusal ? error.message : "The connection to the gateway was lost." });
    }
    return false;
  }

  function remember(turn, text) {
    if (turn.text) {
      messages.push({ role: "assistant", content: turn.text });
      return;
    }
    // Nothing was answered: the next request is not to carry it along, and its sender may want to change it.
    messages.pop();
    if (!$("text").value) $("text").value = text;
  }

  function clear() {
    messages = [];
    $("turns").replaceChildren($("empty"));
    $("empty").hidden = false;
    $("text").focus();
  }

  // On a narrow screen the settings are above the conversation, and make room for it.
  const wide = window.matchMedia("(min-width: 1024px)");

  function foldSettings() {
    $("panel").open = wide.matches;
    $("summary").textContent = `Settings: ${$("model").value}`;
  }

  function showPayer() {
    for (const part of root.querySelectorAll("[data-payer]")) part.hidden = part.dataset.payer !== payer();
  }

  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("settings").addEventListener("submit", (event) => event.preventDefault());
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  });
  $("stop").addEventListener("click", () => running && running.abort());
  $("clear").addEventListener("click", clear);
  $("turns").addEventListener("scroll", noteScroll);
  for (const radio of root.querySelectorAll("[name=payer]")) radio.addEventListener("change", showPayer);
  wide.addEventListener("change", foldSettings);
  window.addEventListener("pagehide", endSession);
  showPayer();
})();
