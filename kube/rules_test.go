package kube_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// rules are what we promise, in short. Where no scenario can show one, unseen says why.
var rules = []struct{ name, says, unseen string }{
	{"Q1", "oldest first within a priority, higher priorities first", ""},
	{"Q2", "an item is ready at most once", ""},
	{"Q3", "an item is not handed out again before its Done", ""},
	{"Q4", "added while processing, it becomes ready at its Done, with the highest priority asked for", ""},
	{"Q5", "Done of what is not processing changes nothing", ""},
	{"Q6", "after ShutDown nothing is accepted, and the backlog is handed out", ""},
	{"Q7", "a drain waits for what is ready and what is processing, and every drain returns", ""},
	{"Q8", "no wake-up is lost", ""},
	{"Q9", "what was popped is not kept alive, and the memory of a burst is given back", ""},
	{"Q10", "an item that could not be found again panics in its caller", ""},
	{"Q11", "when a call returns, Len and the metrics show it", ""},
	{"Q12", "Cancel takes back what is ready, dirty or waiting", "theirs cannot take back"},
	{"T1", "the earliest of several delays wins; one of a ready item waits beside it", ""},
	{"T2", "an Add ends the item's wait", ""},
	{"T3", "equal times: first in, first out", ""},
	{"T4", "nothing fires early or late", ""},
	{"T5", "shutdown drops what waits, and stops the timer", ""},
	{"T6", "Reschedule postpones in one step", "theirs cannot postpone"},
	{"T7", "a retry keeps its priority; of several the highest stays", ""},
	{"R1", "back-off doubles up to its maximum, and never falls", ""},
	{"R2", "the default limiter never answers with more than 1000 s", ""},
	{"R3", "NumRequeues counts, and the limiters combine", ""},
	{"R4", "merged calls, and calls after shutdown, are not charged", ""},
	{"R5", "Forget clears the limiter's memory only", ""},
	{"R6", "Run works, retries and gives up", "theirs have no Run; controller-runtime's controller is not its queue's"},
	{"R7", "Run tells what cannot be retried", "as R6"},
	{"S1", "a write of a Store is all or nothing", ""},
	{"S2", "an index may be added at any time, and moves what changed", ""},
	{"S3", "an index value goes with its last object", ""},
	{"S4", "zero values are values", ""},
	{"S5", "returned slices are the caller's", ""},
	{"S6", "an object without a key is an error, and so is one whose key could not be found again", ""},
	{"F1", "a pending key keeps its place; deleted and added again it goes to the tail", ""},
	{"F2", "Replace forgets what is pending, and keeps the order of the list", ""},
	{"F3", "the consumer runs without the lock, and several may pop", ""},
	{"F4", "a panic in the consumer loses nothing; an error is returned", ""},
	{"F5", "synced is when each initial key has been processed, deleted or forgotten", ""},
	{"F6", "Close ends writes; what is pending is handed out", ""},
	{"D1", "the changes of a key come together, oldest first", ""},
	{"D2", "two deletions in a row merge, nothing else", ""},
	{"D3", "a deletion of what does not exist is dropped", ""},
	{"D4", "Replace announces what is listed, then deletes what is not", ""},
	{"D5", "a deletion says whether it was inferred, and whether there is an object", ""},
	{"D6", "Resync announces what is known and not pending", ""},
	{"D7", "Replace is all or nothing; a transform that fails does not lose a deletion", ""},
	{"D8", "what was not processed is put back in front of what came meanwhile", ""},
	{"D9", "a consumer that requeues what fails loses no deletion", "theirs cannot requeue"},
	{"D10", "Apply brings a Store up to date, and tells", "theirs is not exported"},
	{"bad input", "what makes no sense panics at once", ""},
	{"goroutines", "nothing starts a goroutine", ""},
	{"locks", "no caller's function runs under a lock", ""},
	{"metrics", "metrics are a queue's own, and do not freeze", ""},
}

// rulesDocument returns the part of DIFFERENCES.md that lists the rules.
func rulesDocument() []byte {
	var table bytes.Buffer
	for _, rule := range rules {
		shown := rule.unseen
		if shown == "" {
			shown = fmt.Sprint(scenariosOf(rule.name))
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", rule.name, rule.says, shown)
	}
	return fmt.Appendf(nil, "\n## Rules\n\n| rule | in short | scenarios, or why none |\n|---|---|---|\n%s", &table)
}

func scenariosOf(rule string) (n int) {
	for _, c := range chapters() {
		for _, s := range c.scenarios {
			for named := range strings.SplitSeq(s.rule, ", ") {
				if named == rule {
					n++
				}
			}
		}
	}
	return n
}

// Each rule has a scenario, or a reason why it has none, and each scenario rules that exist.
func TestScenariosCoverRules(t *testing.T) {
	known := make(map[string]bool)
	for _, rule := range rules {
		known[rule.name] = true
		switch n := scenariosOf(rule.name); {
		case n == 0 && rule.unseen == "":
			t.Errorf("%s: no scenario, and no reason", rule.name)
		case n > 0 && rule.unseen != "":
			t.Errorf("%s: %d scenarios, and a reason why there are none", rule.name, n)
		}
	}
	does := make(map[string]bool)
	for _, c := range chapters() {
		for _, s := range c.scenarios {
			for named := range strings.SplitSeq(s.rule, ", ") {
				if !known[named] {
					t.Errorf("%s: no such rule: %q", s.does, named)
				}
			}
			if does[s.does] {
				t.Errorf("two scenarios do %q", s.does)
			}
			does[s.does] = true
		}
	}
}
