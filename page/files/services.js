// Loads the list of services again when it has changed. The link that has the focus keeps it.
const every = 2000; // milliseconds
let shown;

const focused = sessionStorage.getItem("focus");
sessionStorage.removeItem("focus");
if (focused) [...document.querySelectorAll("main a")].find((a) => a.getAttribute("href") === focused)?.focus();

async function follow() {
  if (document.hidden) return;
  const link = document.getElementById("link");
  try {
    const answer = await fetch("./", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const now = await answer.text();
    shown ??= now;
    if (now !== shown) {
      sessionStorage.setItem("focus", document.activeElement?.getAttribute("href") ?? "");
      location.reload();
    }
    link.textContent = "";
  } catch (error) {
    link.textContent ||= "The controller has not answered since " + new Date().toLocaleTimeString([], { hour12: false }) + ".";
  }
}

follow();
setInterval(follow, every);
document.addEventListener("visibilitychange", follow);
