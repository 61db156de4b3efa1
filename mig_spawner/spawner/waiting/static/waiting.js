// Follows the start of a server. Everything works without it: the page loads itself again, and its buttons are plain forms.
(() => {
  "use strict";

  const room = document.getElementById("mig-room");
  if (!room || !room.dataset.migProgress) return;

  const message = document.getElementById("progress-message");
  const bar = document.getElementById("mig-bar");
  const log = document.getElementById("progress-log");
  const states = { done: "done", now: "now", next: "to come" };

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

  const setState = (stage, state) => {
    stage.dataset.migState = state;
    if (state === "now") stage.setAttribute("aria-current", "step");
    else stage.removeAttribute("aria-current");
    stage.querySelector(".mig-stage-state").textContent = states[state];
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
    if (mark.stage !== "waiting") {
      for (const element of room.querySelectorAll(".mig-while-waiting")) element.hidden = true;
    }
  };

  const write = (event) => {
    // HTML in events is the hub's and its admin's, as on JupyterHub's own page.
    if (event.html_message !== undefined) message.innerHTML = event.html_message;
    else if (event.message !== undefined) message.textContent = event.message;
    else return;
    const line = document.createElement("li");
    line.innerHTML = message.innerHTML;
    log.append(line);
  };

  log.replaceChildren();
  const source = new EventSource(room.dataset.migProgress);
  source.onmessage = (raw) => {
    const event = JSON.parse(raw.data);
    if (event.progress !== undefined) bar.value = event.progress;
    write(event);
    if (event.mig) showStage(event.mig, event.message);
    if (event.ready) {
      source.close();
      window.location.reload();
    }
    if (event.failed) {
      source.close();
      room.dataset.migFailed = "true";
      document.getElementById("progress-details").open = true;
      for (const element of room.querySelectorAll(".mig-while-pending")) element.hidden = true;
    }
  };
})();
