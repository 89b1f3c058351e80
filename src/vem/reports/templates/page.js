
"use strict";
for (const article of document.querySelectorAll("article")) {
  const all = (selector) => Array.from(article.querySelectorAll(selector));

  for (const box of all("[data-series]")) {
    box.addEventListener("change", () => {
      for (const part of all(`svg [id*="--series-${box.dataset.series}-"]`)) {
        part.classList.toggle("off", !box.checked);
      }
    });
  }

  for (const box of all("[data-layer]")) {
    box.addEventListener("change", () => {
      for (const part of all(`svg [id*="--layer-${box.dataset.layer}"]`)) {
        part.classList.toggle("off", !box.checked);
      }
    });
  }

  for (const select of all("[data-filter]")) {
    const figures = () => Array.from(document.getElementById(select.dataset.filter).querySelectorAll("figure"));
    select.addEventListener("change", () => {
      for (const figure of figures()) figure.hidden = select.value !== "" && figure.dataset.figure !== select.value;
    });
  }

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
document.documentElement.dataset.ready = "yes";
