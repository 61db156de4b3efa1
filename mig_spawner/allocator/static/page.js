// Times and numbers as the reader's language and zone write them. Everything is there without it.
(() => {
  "use strict";

  const written = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  for (const time of document.querySelectorAll("time.moment")) {
    time.title = time.textContent;
    time.textContent = written.format(new Date(time.dateTime));
  }
  for (const data of document.querySelectorAll("data.number")) {
    const digits = Number(data.dataset.digits);
    const format = new Intl.NumberFormat(undefined, { minimumFractionDigits: digits, maximumFractionDigits: digits });
    data.textContent = format.format(Number(data.value));
  }

  const unit = (value, name) =>
    new Intl.NumberFormat(undefined, { style: "unit", unit: name, unitDisplay: "short" }).format(value);

  const left = (seconds) => {
    if (seconds < 60) return unit(Math.max(Math.floor(seconds), 0), "second");
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return unit(minutes, "minute");
    const hours = Math.floor(minutes / 60);
    if (hours < 24) return `${unit(hours, "hour")} ${unit(minutes % 60, "minute")}`;
    return `${unit(Math.floor(hours / 24), "day")} ${unit(hours % 24, "hour")}`;
  };

  const countdowns = [...document.querySelectorAll("time.countdown")];
  const count = () => {
    for (const time of countdowns) {
      const seconds = (new Date(time.dateTime) - Date.now()) / 1000;
      const text = seconds > 0 ? left(seconds) : "over";
      if (time.textContent !== text) time.textContent = text;
    }
  };
  if (countdowns.length) {
    count();
    setInterval(count, 1000);
  }
})();
