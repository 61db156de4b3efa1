// The spawn form: one line that says what will happen, the smallest slice for a need, and the size calculator. Everything that
// matters works without it: the hub finds the smallest slice as well, and the table says what the calculator says.
(() => {
  "use strict";

  const form = document.getElementById("mig-choices");
  if (!form) return;
  const find = (selector) => form.querySelector(selector);
  const number = (value, digits = 1) => new Intl.NumberFormat(undefined, { maximumFractionDigits: digits }).format(value);
  const write = (element, text) => {
    if (element && element.textContent.trim() !== text) element.textContent = text;
  };

  // The time of day, with the day of the week where it is not soon.
  const clock = (time) => {
    const soon = Math.abs(new Date(time) - Date.now()) < 12 * 3600 * 1000;
    const parts = soon ? { timeStyle: "short" } : { weekday: "short", hour: "numeric", minute: "2-digit" };
    return new Intl.DateTimeFormat(undefined, parts).format(new Date(time));
  };

  for (const time of form.querySelectorAll("time.mig-time")) time.textContent = clock(time.dateTime);

  const need = find("#mig-need");
  const slider = find(".mig-slider");
  const byNeed = find("#mig-choice-by-need");

  const free = (choice) => !/\b0 of\b/.test(choice.querySelector(".mig-free")?.textContent ?? "");
  const sized = () =>
    [...form.querySelectorAll(".mig-choice[data-mig-need]")]
      .filter((choice) => choice.querySelector("input")?.disabled === false)
      .sort(
        (a, b) =>
          Number(a.dataset.migNeed) - Number(b.dataset.migNeed) ||
          Number(a.dataset.migCompute) - Number(b.dataset.migCompute),
      );
  const smallest = (gb) => sized().find((choice) => Number(choice.dataset.migNeed) >= gb);

  const when = ({ migEarliest, migLatest, migCannotTell }) => {
    if (migLatest && new Date(migEarliest) <= Date.now()) return `It would start at the latest about ${clock(migLatest)}.`;
    if (migLatest) return `It would start between ${clock(migEarliest)} and ${clock(migLatest)}.`;
    return migCannotTell ? `When it would start cannot be told: ${migCannotTell}` : "";
  };

  const start = (choice) => {
    const { migOffer, migShort, migLimit, migPrice, migOver, migAhead, migLatest } = choice.dataset;
    if (!migOffer) return "Your server starts without a GPU.";
    if (migOver) return `Your server would not start. ${migOver}`;
    const end = `${migLimit ? `, for at most ${migLimit}` : ""}${migPrice ? `, at ${migPrice}` : ""}.`;
    if (free(choice)) return `Your server starts with ${migShort}${end}`;
    const behind = Number(migAhead) ? `, behind ${migAhead},` : "";
    const range = migLatest ? ` ${when(choice.dataset)}` : "";
    return `Your server waits in line for ${migShort}${behind} and starts with it${end}${range}`;
  };

  const fit = () => {
    const gb = Number(need.value);
    if (!(gb > 0)) return null;
    const choice = smallest(gb);
    if (!choice) {
      write(find("#mig-need-fit"), `Nothing here has ${number(gb)} GB. Choose less, or ask for more.`);
      return null;
    }
    const others = sized().filter((other) => Number(other.dataset.migNeed) < gb).length;
    const why = others ? `the smallest with at least ${number(gb)} GB` : "the smallest there is";
    write(find("#mig-need-fit"), `${choice.dataset.migShort}: ${why}.`);
    return choice;
  };

  const summary = find(".mig-summary");
  const tell = () => {
    const chosen = find("input[type=radio]:checked");
    const fitting = need ? fit() : null;
    // The hub would find the same; so it is sure to.
    if (byNeed) byNeed.value = fitting ? fitting.querySelector("input").value : ":need";
    if (!chosen) write(summary, "");
    else if (chosen === byNeed) write(summary, fitting ? start(fitting) : "Say how many GB you need.");
    else write(summary, start(chosen.closest(".mig-choice")));
  };

  summary.hidden = false;
  form.addEventListener("change", tell);
  form.addEventListener("mig-counts", () => {
    for (const choice of form.querySelectorAll(".mig-choice")) write(choice.querySelector(".mig-starts"), when(choice.dataset));
    tell();
  });

  if (need) {
    slider.hidden = false;
    const ask = (gb) => {
      byNeed.checked = true;
      need.value = gb;
      slider.value = gb;
      tell();
    };
    slider.addEventListener("input", () => ask(slider.value));
    need.addEventListener("input", () => ask(need.value));

    const result = find("#mig-result");
    const cells = [...form.querySelectorAll(".mig-sizes tbody tr")].map((row) => [...row.querySelectorAll("td")]);
    const context = Number(find(".mig-sizes").dataset.migContext);
    const calculate = () => {
      const billions = Number(find("#mig-billions").value);
      const each = Number(cells[find("#mig-task").value][find("#mig-precision").value].dataset.migGb);
      const gb = billions > 0 && each > 0 ? Math.ceil(billions * each + context) : null;
      write(result, gb === null ? "That is not usual; choose another precision." : `About ${number(gb, 0)} GB.`);
      find("#mig-take").disabled = gb === null;
      return gb;
    };
    find(".mig-calculation").hidden = false;
    find(".mig-calculation").addEventListener("input", (event) => {
      event.stopPropagation();
      calculate();
    });
    find("#mig-take").addEventListener("click", () => ask(calculate()));
    calculate();
  }
  tell();
})();
