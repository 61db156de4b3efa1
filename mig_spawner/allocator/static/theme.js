// The theme that was chosen on the hub's pages holds here as well, where both are of one origin; else the system's.
(() => {
  "use strict";
  try {
    const chosen = localStorage.getItem("jupyterhub-bs-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.bsTheme = chosen;
  } catch {
    // A browser that keeps nothing has the system's theme.
  }
})();
