"use strict";
// Without this script every case is shown unfolded; the script folds those that passed, sorts and searches.
(() => {
  const table = document.getElementById("cases");
  if (!table) return;
  const cases = [...table.tBodies];
  const search = document.getElementById("search");
  const state = document.getElementById("state");
  const count = document.getElementById("count");
  document.querySelector(".tools").hidden = false;

  const unfold = (button, open) => {
    button.setAttribute("aria-expanded", String(open));
    document.getElementById(button.getAttribute("aria-controls")).hidden = !open;
  };
  for (const button of table.querySelectorAll(".unfold")) {
    unfold(button, button.closest("tbody").matches(".failing"));
    button.addEventListener("click", () => unfold(button, button.getAttribute("aria-expanded") !== "true"));
  }

  const texts = new Map(cases.map((one) => [one, one.textContent.toLowerCase()]));
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const one of cases) {
      const fits = words.every((word) => texts.get(one).includes(word))
        && (!state.value || one.dataset.state === state.value
          || (state.value === "not passed" && one.matches(".failing")));
      one.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${cases.length} cases shown`;
  };
  // A long list opens on what did not pass.
  const failing = cases.filter((one) => one.matches(".failing")).length;
  if (failing && cases.length > 30) state.value = "not passed";
  search.addEventListener("input", show);
  state.addEventListener("change", show);
  show();

  const collator = new Intl.Collator(undefined, { numeric: true });
  const value = (one, column) => one.rows[0].cells[column].dataset.value;
  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const head = button.parentElement;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    // Cases without a value come last in both directions.
    cases.sort((a, b) => {
      const [x, y] = [value(a, head.cellIndex), value(b, head.cellIndex)];
      if (!x || !y) return (x ? 0 : 1) - (y ? 0 : 1);
      return sign * collator.compare(x, y);
    });
    table.append(...cases);
  });
})();
