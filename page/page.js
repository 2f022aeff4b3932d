"use strict";

// Loads the page again and again, and puts its live part in the place of the one that is
// shown. All text is made by the server; this makes none of it.
(() => {
	if (document.body.classList.contains("still")) return;
	const every = 700; // ms; with the time that an answer takes, less than a second
	const patience = 10_000; // ms
	const notice = document.getElementById("notice");
	const live = () => document.getElementById("live");
	let answered = new Date();

	// What somebody is selecting, to copy it, must not be taken away.
	function selecting() {
		const selection = getSelection();
		return !selection.isCollapsed && live().contains(selection.anchorNode);
	}

	function show(next) {
		const focused = live().contains(document.activeElement) ? document.activeElement.id : "";
		live().replaceWith(document.adoptNode(next.getElementById("live")));
		document.title = next.title;
		if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
	}

	function say(text) {
		if (notice.textContent !== text) notice.textContent = text; // a screen reader reads it once
	}

	async function refresh() {
		const answer = await fetch(location.href, { signal: AbortSignal.timeout(patience) });
		const next = new DOMParser().parseFromString(await answer.text(), "text/html");
		if (!next.getElementById("live")) throw new Error("not this page");
		answered = new Date();
		if (selecting()) return say("Held while text is selected.");
		show(next);
		say("");
	}

	async function run() {
		for (;;) {
			await new Promise((resolve) => setTimeout(resolve, every));
			if (document.hidden) continue;
			try {
				await refresh();
			} catch {
				say(`No answer since ${answered.toLocaleTimeString()}. What is shown is from then.`);
			}
		}
	}
	run();
})();
