package kube_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write DIFFERENCES.md anew")

// A scenario is something that one can do with a queue, written once and done with each
// side's. What is seen must be want with ours. Where a rival shows something else, why says
// so in words, and where none does, it is empty.
type scenario struct {
	does string // what is done
	rule string // the promises that it is about; see rules
	want string
	why  string
	do   func(r *trial)

	without    []side // those that have no such thing
	metered    bool   // the work queue reports to r.meter
	priorities bool   // items come with theirs
	deadly     bool   // it may end the program
}

// A chapter is the scenarios of one kind of thing, and who has it, ours first.
type chapter struct {
	title     string
	sides     []side
	scenarios []scenario
}

func chapters() []chapter {
	return []chapter{{
		"Work queues and limiters", []side{ours, clientGo, controllerRuntime},
		slices.Concat(
			whenHandingOut(), whenShuttingDown(), whenDraining(), whenDelaying(), whenRetrying(), whenLimiting(),
			whenPrioritizing(), whenMetering(), whenUsing(), whenMisused(),
		),
	}, {
		"Stores and queues of objects", []side{ours, clientGo, realFIFO},
		slices.Concat(whenStoring(), whenIndexing(), whenLining(), whenListing(), whenRecording(), whenReplacing(), whenTransforming()),
	}}
}

// without returns all, each of which some sides have not.
func without(sides []side, all []scenario) []scenario {
	for i := range all {
		all[i].without = append(all[i].without, sides...)
	}
	return all
}

func (s scenario) possible(of side) bool {
	return !slices.ContainsFunc(s.without, func(w side) bool { return w.name == of.name })
}

// A result is what a scenario showed with each side, by name; "" where it could not be done.
type result struct {
	scenario
	sides []side
	seen  map[string]string
}

func (c chapter) results(t *testing.T) []result {
	var results []result
	for _, s := range c.scenarios {
		r := result{s, c.sides, make(map[string]string)}
		for _, of := range c.sides {
			if s.possible(of) {
				r.seen[of.name] = s.observe(t, of)
			}
		}
		r.check(t)
		results = append(results, r)
	}
	return results
}

// differs reports whether any rival showed something else than we.
func (r result) differs() bool {
	for _, seen := range r.seen {
		if seen != r.seen[ours.name] {
			return true
		}
	}
	return false
}

func (r result) check(t *testing.T) {
	if got := r.seen[ours.name]; got != r.want {
		t.Errorf("%s (%s):\n got %s\nwant %s", r.does, r.rule, got, r.want)
	}
	switch {
	case len(r.seen) < 2:
		t.Errorf("%s (%s): nobody to compare with", r.does, r.rule)
	case r.differs() && r.why == "":
		t.Errorf("%s (%s): not explained: %q", r.does, r.rule, r.seen)
	case !r.differs() && r.why != "":
		t.Errorf("%s (%s): nothing differs, and yet it is explained", r.does, r.rule)
	}
}

// TestDifferences does all scenarios with all sides. Ours must show what we promise. What
// differs is listed, and explained, in DIFFERENCES.md, which must be what happens:
//
//	go test -run TestDifferences -update .
func TestDifferences(t *testing.T) {
	if os.Getenv(childOf) != "" {
		child(t)
		return
	}
	const file = "DIFFERENCES.md"
	is := document(t)
	if *update {
		must(os.WriteFile(file, is, 0o666))
		return
	}
	was, err := os.ReadFile(file)
	must(err)
	if runtime.GOARCH != "amd64" { // elsewhere client-go's overflow looks different
		return
	}
	if !bytes.Equal(is, was) {
		t.Errorf("%s is not what happens: see what -update changes. It would be\n%s", file, is)
	}
}

// childOf is set in a process that does one scenario with one side: "scenario\nside".
const childOf = "KUBE_DIFFERENCES_CHILD"

const observed = "observed: "

// observeChild does s in another process, which may die of it.
func (s scenario) observeChild(t *testing.T, of side) string {
	cmd := exec.Command(os.Args[0], "-test.run=^TestDifferences$")
	// The race detector would have it wait a second at its end.
	cmd.Env = append(os.Environ(), childOf+"="+s.does+"\n"+of.name, "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if _, seen, ok := strings.Cut(string(out), observed); ok && err == nil {
		seen, _, _ = strings.Cut(seen, "\n")
		return seen
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && bytes.Contains(out, []byte("panic: ")) {
		return "panics in a goroutine of the queue's: the program dies"
	}
	t.Fatalf("%s: %s: %v\n%s", s.does, of.name, err, out)
	return ""
}

// child does what childOf asks for.
func child(t *testing.T) {
	for _, c := range chapters() {
		for _, s := range c.scenarios {
			for _, of := range c.sides {
				if os.Getenv(childOf) == s.does+"\n"+of.name {
					fmt.Println(observed + s.observe(t, of))
					return
				}
			}
		}
	}
	t.Fatalf("no such scenario: %q", os.Getenv(childOf))
}

// document returns DIFFERENCES.md.
func document(t *testing.T) []byte {
	doc := fmt.Appendf(nil, documentText,
		required(t, "k8s.io/client-go"), required(t, "sigs.k8s.io/controller-runtime"))
	for _, c := range chapters() {
		doc = append(doc, c.document(c.results(t))...)
	}
	return append(doc, rulesDocument()...)
}

func (c chapter) document(results []result) []byte {
	var differ, same bytes.Buffer
	for _, r := range results {
		if r.differs() {
			fmt.Fprintf(&differ, "| %s | %s | %s | %s | %s | %s |\n", r.does, r.rule,
				r.seen[ours.name], r.cell(r.sides[1]), r.cell(r.sides[2]), r.why)
		} else {
			fmt.Fprintf(&same, "| %s | %s | %s |\n", r.does, r.rule, r.seen[ours.name])
		}
	}
	return fmt.Appendf(nil, chapterText, c.title, c.sides[1].name, c.sides[2].name, &differ, &same)
}

func (r result) cell(of side) string {
	switch seen := r.seen[of.name]; seen {
	case "":
		return "–"
	case r.seen[ours.name]:
		return "as ours"
	default:
		return seen
	}
}

// required returns the version of a module that this one requires.
func required(t *testing.T, module string) string {
	mod, err := os.ReadFile("go.mod")
	must(err)
	m := regexp.MustCompile(regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatalf("go.mod does not require %s", module)
	}
	return string(m[1])
}

const documentText = `# What differs from client-go and controller-runtime

Generated by a test, which does each of these things with our queues and stores, with
client-go's (%s) and with controller-runtime's priority queue (%s), through the same
interfaces, and notes what is seen. It fails if this page says anything else, if a difference
has no explanation or an explanation no difference, and if a rule has neither a scenario nor a
reason why not:

` + "```sh\ngo -C kube test -run TestDifferences -update .\n```" + `

"a b" is what one worker gets, in order, and "nothing" means that it would wait; "blocks" means
for ever; "–" means that there is no such thing, or not one of its own. Priorities are in
parentheses. The limiter answers 1 s unless something else is said.

An object is "a2": its key is a, and this is its second state. A slash stands between what a
consumer is handed one after the other. "Deleted?" is a deletion that was inferred, or asked
for by key, with the object that comes with it: client-go's DeletedFinalStateUnknown. A FIFO is
compared with client-go's FIFO, and a DeltaFIFO with its DeltaFIFO and with RealFIFO, which its
informers use now, and which is here without AtomicEvents (with that, a list is one change).
`

const chapterText = `
## %[1]s: differences

| what is done | rule | ours | %[2]s | %[3]s | why, and what one can do |
|---|---|---|---|---|---|
%[4]s
## %[1]s: no differences

| what is done | rule | what is seen |
|---|---|---|
%[5]s`
