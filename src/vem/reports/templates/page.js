"use strict";
for (const article of document.querySelectorAll("article")) {
  const all = (selector) => Array.from(article.querySelectorAll(selector));
  const hides = (box, selector) => box.addEventListener("change", () => {
    for (const part of all(selector)) part.classList.toggle("off", !box.checked);
  });
  for (const box of all("[data-series]")) hides(box, `svg [id*="--series-${box.dataset.series}-"]`);
  for (const box of all("[data-layer]")) hides(box, `svg [id*="--layer-${box.dataset.layer}"]`);

  for (const slider of all("[data-slider]")) {
    const section = document.getElementById(slider.dataset.slider);
    const figures = Array.from(section.querySelectorAll("figure"));
    const labels = JSON.parse(slider.dataset.labels);
    const together = section.querySelector("[data-all]");
    const update = () => {
      const chosen = Number(slider.value);
      figures.forEach((figure, index) => { figure.hidden = !together.checked && index !== chosen; });
      section.querySelector(".figures").classList.toggle("single", !together.checked);
      slider.disabled = together.checked;
      slider.parentElement.querySelector("output").textContent = together.checked ? "all" : labels[chosen];
    };
    slider.addEventListener("input", update);
    together.addEventListener("change", update);
    update();
  }
}
const unfold = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", unfold);
unfold();
document.documentElement.dataset.ready = "yes";
