// Follows the start of a server. Everything works without it: the page loads itself again, and its buttons are plain forms.
(() => {
  "use strict";

  const room = document.getElementById("mig-room");
  if (!room || !room.dataset.migProgress) return;

  const message = document.getElementById("progress-message");
  const bar = document.getElementById("mig-bar");
  const log = document.getElementById("progress-log");
  const offers = document.getElementById("mig-offers");
  const states = { done: "done", now: "now", next: "to come", failed: "failed here" };
  const REFRESH_MS = 10_000;
  const SOON_MS = 1_500;
  const LOST_MS = 3_000;

  const clock = (iso) => new Date(iso).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

  const setTime = (element, iso) => {
    if (!element || element.dateTime === iso) return;
    element.dateTime = iso;
    element.textContent = clock(iso);
  };

  // Times come from the server in its own clock; people read them in theirs.
  for (const element of room.querySelectorAll("time[datetime]")) {
    if (element.dateTime) element.textContent = clock(element.dateTime);
  }

  const hide = (selector, hidden) => {
    for (const element of room.querySelectorAll(selector)) element.hidden = hidden;
  };

  // A page that comes late is told everything at once. The last of it is said, and only what is new, for screen readers.
  let saying = null;
  let said = message.innerHTML.trim();
  const say = (html) => {
    clearTimeout(saying);
    saying = setTimeout(() => {
      if (html !== said) message.innerHTML = html;
      said = html;
    }, 100);
  };

  // What goes on is said above; the reason of a stage is read when it is over.
  const setState = (stage, state) => {
    stage.dataset.migState = state;
    if (state === "now") stage.setAttribute("aria-current", "step");
    else stage.removeAttribute("aria-current");
    stage.querySelector(".mig-stage-state").textContent = states[state];
    stage.querySelector(".mig-stage-reason").hidden = state === "now";
  };

  const showStage = (mark, text) => {
    const stages = [...room.querySelectorAll("[data-mig-stage]")];
    const current = stages.findIndex((stage) => stage.dataset.migStage === mark.stage);
    if (current < 0) return;
    stages.forEach((stage, number) => {
      setState(stage, number < current ? "done" : number === current ? "now" : "next");
    });
    const time = stages[current].querySelector("time");
    if (!time.dateTime) setTime(time, mark.at);
    stages[current].querySelector(".mig-stage-reason").textContent = text;
    // The line is over once something is held: what could be asked for instead is no question any more.
    waits = mark.stage === "waiting";
    if (waits) look(SOON_MS);
    else hide("#mig-offers", true);
  };

  // What could be had instead is written by the hub, in the page itself: it is taken from there while somebody waits. What has the
  // focus stays where it is.
  let waits = false;
  let looking = null;
  let taken = offers.innerHTML;
  const look = (delay) => {
    clearTimeout(looking);
    if (waits) looking = setTimeout(refresh, delay);
  };
  const refresh = async () => {
    try {
      if (!document.hidden) take(await page());
    } catch {
      // The hub is away; the events tell of it.
    }
    look(REFRESH_MS);
  };
  const page = async () => {
    const answer = await fetch(window.location.href, { cache: "no-store" });
    return answer.ok && !answer.redirected ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  };
  const take = (found) => {
    const fresh = found?.getElementById("mig-offers")?.innerHTML;
    if (fresh === undefined || fresh === taken || !waits) return;
    const focused = offers.contains(document.activeElement) ? document.activeElement.id : "";
    if (focused && !found.getElementById(focused)) return;
    const wanted = document.getElementById("mig-change")?.value;
    offers.innerHTML = taken = fresh;
    offers.hidden = false;
    const select = document.getElementById("mig-change");
    if (select && [...select.options].some((option) => option.value === wanted)) select.value = wanted;
    if (focused) document.getElementById(focused).focus();
  };

  const write = (event) => {
    // HTML in events is the hub's and its admin's, as on JupyterHub's own page.
    if (event.html_message === undefined && event.message === undefined) return;
    const line = document.createElement("li");
    if (event.html_message !== undefined) line.innerHTML = event.html_message;
    else line.textContent = event.message;
    say(line.innerHTML);
    log.append(line);
  };

  const over = () => {
    waits = false;
    clearTimeout(lost);
    source.close();
  };

  const read = (event) => {
    if (event.progress !== undefined) bar.value = event.progress;
    write(event);
    if (event.mig) showStage(event.mig, event.message);
    if (event.ready) {
      over();
      window.location.reload();
    }
    if (event.failed) {
      over();
      room.dataset.migFailed = "true";
      for (const stage of room.querySelectorAll("[aria-current]")) setState(stage, "failed");
      document.getElementById("progress-details").open = true;
      hide(".mig-while-pending, #mig-offers", true);
      hide(".mig-when-failed", false);
    }
  };

  // The stream begins anew after each break, with everything that was said before.
  let lost = null;
  const source = new EventSource(room.dataset.migProgress);
  source.onopen = () => {
    clearTimeout(lost);
    log.replaceChildren();
  };
  source.onmessage = (raw) => read(JSON.parse(raw.data));
  source.onerror = () => {
    clearTimeout(lost);
    if (source.readyState === EventSource.CLOSED) comeBack();
    else lost = setTimeout(() => say("The hub does not answer; trying again."), LOST_MS);
  };

  // Nothing more will be told of this start, so the page says what became of it as soon as it can be had.
  const comeBack = () => {
    waits = false;
    say("The hub does not answer; trying again.");
    setTimeout(async () => {
      try {
        await fetch(window.location.href, { cache: "no-store" });
        window.location.reload();
      } catch {
        comeBack();
      }
    }, LOST_MS);
  };
})();
