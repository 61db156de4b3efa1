// Keeps the counts of the spawn form fresh. Everything works without it; it never moves focus, selection or layout.
(() => {
  "use strict";

  const form = document.getElementById("mig-choices");
  if (!form || !form.dataset.migTicket) return;

  const url = `${form.dataset.migUrl}/api/v1/availability`;
  const ticket = form.dataset.migTicket;
  const interval = Math.max(Number(form.dataset.migInterval) || 10, 1) * 1000;
  const status = form.querySelector(".mig-live-status");
  let etag = null;
  let timer = null;
  let failures = 0;
  let over = false;

  // Only a changed text is written, so that screen readers hear changes and nothing else.
  const write = (element, text) => {
    if (element && element.textContent.trim() !== text) element.textContent = text;
  };

  const fits = (choice, offer) => {
    const key = choice.dataset.migOffer;
    if (key === "whole") return offer.profile === null;
    if (key.startsWith("profile:")) return offer.profile === key.slice("profile:".length);
    return offer.profile !== null && offer.memory_gb >= Number(key.slice("memory:".length));
  };

  const show = (availability) => {
    const waiting = availability.queue_length === 0 ? "nobody waits yet" : `${availability.queue_length} waiting`;
    for (const choice of form.querySelectorAll('[data-mig-offer]:not([data-mig-offer=""])')) {
      const offers = availability.offers.filter((offer) => fits(choice, offer));
      const free = Math.max(0, ...offers.map((offer) => offer.free));
      const total = Math.max(0, ...offers.map((offer) => offer.total));
      const badge = choice.querySelector(".mig-free");
      write(badge, `free now ${free} of ${total}`);
      if (badge) {
        badge.classList.toggle("text-bg-success", free > 0);
        badge.classList.toggle("text-bg-secondary", free === 0);
      }
      // A choice is never disabled under somebody's hands: the allocator says no if it must.
      let reason = "";
      if (total === 0) reason = "No GPU of this hub can serve this choice now.";
      else if (free === 0) reason = `None free now: you would wait in line (${waiting}).`;
      write(choice.querySelector(".mig-reason"), reason);
    }
  };

  const pause = (why) => write(status, `Live counts paused${why}.`);

  const read = async () => {
    const headers = { Authorization: `Bearer ${ticket}` };
    if (etag) headers["If-None-Match"] = etag;
    const answer = await fetch(url, { headers, cache: "no-store", credentials: "omit" });
    if (answer.status === 401 || answer.status === 403) {
      over = true;
      pause("; reload the page for fresh ones");
      return;
    }
    if (answer.status !== 304) {
      if (!answer.ok) throw new Error(String(answer.status));
      show(await answer.json());
      etag = answer.headers.get("ETag");
    }
    failures = 0;
    write(status, "Counts are live.");
  };

  const schedule = (delay) => {
    clearTimeout(timer);
    if (!over && !document.hidden) timer = setTimeout(tick, delay);
  };

  const tick = async () => {
    try {
      await read();
    } catch {
      failures += 1;
      pause("; trying again");
    }
    // A little jitter, so that a class of students does not ask in step; longer pauses while nothing answers.
    schedule(interval * (0.8 + 0.4 * Math.random()) * Math.min(2 ** failures, 16));
  };

  document.addEventListener("visibilitychange", () => schedule(500 * Math.random()));
  schedule(interval * Math.random());
})();
