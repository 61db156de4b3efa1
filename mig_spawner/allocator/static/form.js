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

  for (const time of form.querySelectorAll("time.mig-time")) {
    time.textContent = new Intl.DateTimeFormat(undefined, { timeStyle: "short" }).format(new Date(time.dateTime));
  }

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

  const start = (choice) => {
    if (!choice.dataset.migOffer) return "Your server starts without a GPU.";
    const limit = choice.dataset.migLimit ? `, for at most ${choice.dataset.migLimit}` : "";
    if (!free(choice)) return `Your server waits in line for ${choice.dataset.migShort} and starts with it${limit}.`;
    return `Your server starts with ${choice.dataset.migShort}${limit}.`;
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
  form.addEventListener("mig-counts", tell);

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
