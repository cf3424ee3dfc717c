// Buttons that go through steps one by one, and play them. `place`: the number of the step, of `count`; `go` draws another.
function stepper(box, { count, place, go, words }) {
  let playing = null;
  const button = (name, sign, act) => {
    const made = document.createElement("button");
    made.type = "button"; made.textContent = sign; made.title = words[name];
    made.setAttribute("aria-label", words[name]);
    made.addEventListener("click", act);
    return made;
  };
  const stop = () => { clearInterval(playing); playing = null; play.textContent = "▶"; play.setAttribute("aria-pressed", false); };
  const move = (by) => { stop(); go((Math.max(place(), by > 0 ? -1 : 0) + by + count()) % count()); };  // -1: none yet
  const play = button("play", "▶", () => {
    if (playing) { stop(); return; }
    go(0);
    play.textContent = "❚❚"; play.setAttribute("aria-pressed", true);
    playing = setInterval(() => { if (place() + 1 < count()) go(place() + 1); else stop(); }, 700);
  });
  box.replaceChildren(button("previous", "←", () => move(-1)), play, button("next", "→", () => move(1)));
  box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) { event.preventDefault(); move(by); }
  });
  return { stop, move };
}
