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
  let asOf = form.querySelector(".mig-live-status time")?.dateTime ?? Date.now();

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

  // The time of day, with the day of the week where it is not soon.
  const clock = (time) => {
    const soon = Math.abs(new Date(time) - Date.now()) < 12 * 3600 * 1000;
    const parts = soon ? { timeStyle: "short" } : { weekday: "short", hour: "numeric", minute: "2-digit" };
    return new Intl.DateTimeFormat(undefined, parts).format(new Date(time));
  };

  // What could be had at once where this cannot: the nearest sizes that are free, larger ones first, and to do without.
  const instead = (choice, free) => {
    const box = choice.querySelector(".mig-instead");
    if (!box) return;
    const mine = Number(choice.dataset.migGb);
    const usable = (other) => other.querySelector("input")?.disabled === false;
    const sized = [...free].filter((other) => other !== choice && usable(other));
    const distance = (other) => Number(other.dataset.migGb) - mine;
    sized.sort((a, b) => (distance(a) < 0) - (distance(b) < 0) || Math.abs(distance(a)) - Math.abs(distance(b)));
    const none = [...form.querySelectorAll('.mig-choice[data-mig-offer=""]')].filter(
      (other) => usable(other) && !other.querySelector(".mig-free"),
    );
    const shown = free.has(choice) ? [] : [...sized.slice(0, 2), ...none.slice(0, 1)];
    const wanted = shown.map((other) => other.querySelector("input").id).join(" ");
    box.hidden = shown.length === 0;
    if (box.dataset.migShown === wanted) return;
    box.dataset.migShown = wanted;
    for (const label of box.querySelectorAll("label")) label.remove();
    for (const other of shown) {
      const label = document.createElement("label");
      label.className = "btn btn-sm border text-body";
      label.htmlFor = other.querySelector("input").id;
      label.textContent = other.dataset.migShort;
      box.append(" ", label);
    }
  };

  const show = (availability) => {
    const offered = [...form.querySelectorAll('[data-mig-offer]:not([data-mig-offer=""])')];
    const free = new Set();
    for (const choice of offered) {
      const offers = availability.offers.filter((offer) => fits(choice, offer));
      const now = Math.max(0, ...offers.map((offer) => offer.free));
      const total = Math.max(0, ...offers.map((offer) => offer.total));
      const ahead = Math.max(0, ...offers.map((offer) => offer.waiting));
      const ends = offers.map((offer) => offer.first_end).filter(Boolean).sort();
      const ranges = offers.map((offer) => offer.starts_between).filter(Boolean);
      const starts = now > 0 ? null : ranges.sort((a, b) => new Date(a.latest) - new Date(b.latest))[0];
      choice.dataset.migAhead = ahead;
      choice.dataset.migEarliest = starts?.earliest ?? "";
      choice.dataset.migLatest = starts?.latest ?? "";
      choice.dataset.migCannotTell = now > 0 || starts ? "" : (offers.find((offer) => offer.cannot_tell)?.cannot_tell ?? "");
      if (now > 0) free.add(choice);
      const badge = choice.querySelector(".mig-free");
      write(badge, `free now ${now} of ${total}`);
      if (badge) {
        badge.classList.toggle("text-bg-success", now > 0);
        badge.classList.toggle("text-bg-secondary", now === 0);
      }
      // A choice is never disabled under somebody's hands: the allocator says no if it must. What the menu forbids stays forbidden.
      if (choice.querySelector("input")?.disabled) continue;
      const waiting = ahead === 0 ? "nobody waits for it yet" : `${ahead} ahead of you`;
      let reason = "";
      if (total === 0) reason = "No GPU of this hub can serve this choice now.";
      else if (now === 0) reason = `None free now: you would wait in line (${waiting}).`;
      write(choice.querySelector(".mig-reason"), reason);
      const end = now === 0 && total > 0 && ends.length ? `The first ends about ${clock(ends[0])}.` : "";
      write(choice.querySelector(".mig-first-end"), end);
    }
    for (const choice of offered) instead(choice, free);
    form.dispatchEvent(new Event("mig-counts"));
  };

  const pause = (why) => write(status, `Live counts paused${why}. They are as of ${clock(asOf)}.`);

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
    asOf = Date.now();
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
