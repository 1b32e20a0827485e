// Shows the patterns whose card or data-words have every word of the field; of code only the names
// of builders count: "causal" is no word of sliding_window(48, 9, causal=False).
const field = document.querySelector(".filter input");
const cards = [...document.querySelectorAll(".patterns > a")].map((card) => {
  const shown = card.cloneNode(true);
  shown.querySelector("code").remove();
  return { card, text: `${shown.textContent} ${card.dataset.words}`.toLowerCase() };
});

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const { card, text } of cards) {
    card.hidden = !words.every((word) => text.includes(word));
    if (!card.hidden) count += 1;
  }
  for (const family of document.querySelectorAll("section > section")) {
    const own = [...family.querySelectorAll(".patterns > a")];
    family.hidden = own.length > 0 && own.every((card) => card.hidden);
  }
  document.querySelector(".filter output").textContent = words.length ? `${count} of ${cards.length}` : "";
  history.replaceState(null, "", words.length ? `?find=${encodeURIComponent(field.value)}` : location.pathname);
}

field.value = new URLSearchParams(location.search).get("find") || "";
field.addEventListener("input", show);
document.querySelector(".filter").hidden = false;
if (field.value) show();
