package kube_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/typedqueue"
)

type (
	name   = typedqueue.NamespacedName
	pod    = corev1.Pod
	keyPod = typedqueue.KeyFunc[name, *pod]
)

var podKey keyPod = typedqueue.MetaNamespaceKey[*pod]

// makePod makes one of the pods: a tenth of them is in each namespace, and a hundredth on
// each node.
func makePod(id int) *pod {
	return &pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%d", id%10), Name: fmt.Sprintf("name-%d", id)},
		Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", id/10%100)},
	}
}

func pods(n int) []*pod {
	list := make([]*pod, n)
	for i, id := range ints(n) {
		list[i] = makePod(id)
	}
	return list
}

// updates is n pods, each a tenth as often as there are: ten versions of each, in turn.
func updates(n int) []*pod {
	ids := ints(n / 10)
	list := make([]*pod, 0, n)
	for range 10 {
		for _, id := range ids {
			list = append(list, makePod(id))
		}
	}
	return list
}

func anys(list []*pod) []any {
	all := make([]any, len(list))
	for i, p := range list {
		all[i] = p
	}
	return all
}

// line is a FIFO of pods under test. All contestants pay for the calls through functions.
type line struct {
	add     func(*pod)
	update  func(*pod)
	replace func() // with the list that it was made for
	pop     func() int
}

// A lineMaker makes a line whose replace puts list into it. Its pop returns how many
// changes came out.
type lineMaker struct {
	name string
	make func(list []*pod) line
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func deltaFIFOs() []lineMaker {
	return []lineMaker{
		{"ours", func(list []*pod) line {
			q := typedqueue.NewDeltaFIFO(podKey, typedqueue.DeltaFIFOOptions[name, *pod]{})
			ctx, changes := context.Background(), 0
			process := func(_ name, deltas typedqueue.Deltas[*pod], _ bool) error {
				changes = len(deltas)
				return nil
			}
			return line{
				add:     func(p *pod) { must(q.Add(p)) },
				update:  func(p *pod) { must(q.Update(p)) },
				replace: func() { must(q.Replace(list)) },
				pop: func() int {
					_, err := q.Pop(ctx, process)
					must(err)
					return changes
				},
			}
		}},
		{"client-go", func(list []*pod) line {
			return rival(list, cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
				KeyFunction: cache.MetaNamespaceKeyFunc, EmitDeltaTypeReplaced: true,
			}))
		}},
		// As it does not merge, it pops each change for itself. Known objects make it queue a
		// replaced list object by object, as the others do.
		{"client-go-RealFIFO", func(list []*pod) line {
			return rival(list, cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
				KeyFunction: cache.MetaNamespaceKeyFunc, KnownObjects: cache.NewStore(cache.MetaNamespaceKeyFunc),
			}))
		}},
	}
}

func rival(list []*pod, q cache.Queue) line {
	all, changes := anys(list), 0
	process := func(deltas any, _ bool) error {
		changes = len(deltas.(cache.Deltas))
		return nil
	}
	return line{
		add:     func(p *pod) { must(q.Add(p)) },
		update:  func(p *pod) { must(q.Update(p)) },
		replace: func() { must(q.Replace(all, "1")) },
		pop: func() int {
			_, err := q.Pop(process)
			must(err)
			return changes
		},
	}
}

// popAll pops until n changes have come.
func popAll(q line, n int) {
	for n > 0 {
		n -= q.pop()
	}
}

// lines is a workload that pods go through, in lines that are made anew for each round,
// or have done the same work once.
func lines(size int, fresh bool, makers []lineMaker, pods func(int) []*pod, work func(q line, pods []*pod)) []workload {
	pods = shared(pods)
	wl := workload{name: "key=struct", size: size}
	for _, m := range makers {
		wl.contestants = append(wl.contestants, contestant{m.name, func(tb testing.TB, size int) round {
			pods := pods(size)
			if fresh {
				return func(w *watch) {
					q := m.make(pods)
					w.start()
					work(q, pods)
					w.stop(size)
				}
			}
			q := m.make(pods)
			work(q, pods)
			return func(w *watch) {
				w.start()
				work(q, pods)
				w.stop(size)
			}
		}})
	}
	return []workload{wl}
}

// BenchmarkDeltaAddPop is Add of 100,000 pods, then Pop of all, again and again in one
// queue. Client-go's keys are strings, joined for each call; ours are structs.
func BenchmarkDeltaAddPop(b *testing.B) { benchmark(b, deltaAddPops()) }

func deltaAddPops() []workload { return lines(100_000, false, deltaFIFOs(), pods, addPop) }

func addPop(q line, pods []*pod) {
	for _, p := range pods {
		q.add(p)
	}
	popAll(q, len(pods))
}

// BenchmarkDeltaReplaceFresh is Replace of a new queue with 100,000 pods, then Pop of all.
func BenchmarkDeltaReplaceFresh(b *testing.B) { benchmark(b, deltaReplacesFresh()) }

func deltaReplacesFresh() []workload { return lines(100_000, true, deltaFIFOs(), pods, replacePop) }

func replacePop(q line, pods []*pod) {
	q.replace()
	popAll(q, len(pods))
}

// BenchmarkDeltaReplaceAgain is the same of a queue that has had one.
func BenchmarkDeltaReplaceAgain(b *testing.B) { benchmark(b, deltaReplacesAgain()) }

func deltaReplacesAgain() []workload { return lines(100_000, false, deltaFIFOs(), pods, replacePop) }

// BenchmarkDeltaUpdates is 10 updates of each of 10,000 pods, in turn, then Pop of all, 10
// updates at a time.
func BenchmarkDeltaUpdates(b *testing.B) { benchmark(b, deltaUpdates()) }

func deltaUpdates() []workload { return lines(100_000, false, deltaFIFOs(), updates, updatePop) }

func updatePop(q line, pods []*pod) {
	for _, p := range pods {
		q.update(p)
	}
	popAll(q, len(pods))
}

// BenchmarkDeltaStream is a producer that makes 200,000 updates of 10,000 pods, and a
// consumer that pops meanwhile, until it has them all.
func BenchmarkDeltaStream(b *testing.B) { benchmark(b, deltaStreams()) }

func deltaStreams() []workload {
	const laps = 20
	streamed := func(size int) []*pod { return pods(size / laps) }
	return lines(200_000, true, deltaFIFOs(), streamed, func(q line, pods []*pod) {
		go func() {
			for range laps {
				for _, p := range pods {
					q.update(p)
				}
			}
		}()
		popAll(q, laps*len(pods))
	})
}

// BenchmarkFIFO is Add of 100,000 pods, then Pop of all, again and again in one FIFO.
func BenchmarkFIFO(b *testing.B) { benchmark(b, fifos()) }

func fifos() []workload {
	return lines(100_000, false, []lineMaker{
		{"ours", func([]*pod) line {
			q, ctx := typedqueue.NewFIFO(podKey), context.Background()
			process := func(name, *pod, bool) error { return nil }
			return line{
				add: func(p *pod) { must(q.Add(p)) },
				pop: func() int {
					_, err := q.Pop(ctx, process)
					must(err)
					return 1
				},
			}
		}},
		{"client-go", func([]*pod) line {
			q := cache.NewFIFO(cache.MetaNamespaceKeyFunc)
			process := func(any, bool) error { return nil }
			return line{
				add: func(p *pod) { must(q.Add(p)) },
				pop: func() int {
					_, err := q.Pop(process)
					must(err)
					return 1
				},
			}
		}},
	}, pods, addPop)
}

// stored is a store of pods under test, with or without indexes by namespace and node. All
// contestants pay for the calls through functions.
type stored struct {
	add, update, remove func(*pod)
	get                 func(*pod)
	getByKey            func(i int) // the key of the i-th pod
	list                func() int
	namespace, node     func(value string) int // how many pods were found
}

type storeMaker struct {
	name string
	make func(pods []*pod, indexed bool) stored
}

func storeMakers() []storeMaker {
	return []storeMaker{
		{"ours", func(pods []*pod, indexed bool) stored {
			s := typedqueue.NewStore(podKey)
			keys := make([]name, len(pods))
			for i, p := range pods {
				keys[i] = name{Namespace: strings.Clone(p.Namespace), Name: strings.Clone(p.Name)}
			}
			st := stored{
				add:      func(p *pod) { must(s.Add(p)) },
				update:   func(p *pod) { must(s.Update(p)) },
				remove:   func(p *pod) { must(s.Delete(p)) },
				get:      func(p *pod) { _, _, err := s.Get(p); must(err) },
				getByKey: func(i int) { s.GetByKey(keys[i]) },
				list:     func() int { return len(s.List()) },
			}
			if indexed {
				namespaces, err := typedqueue.NewIndex(s, func(p *pod) ([]string, error) { return []string{p.Namespace}, nil })
				must(err)
				nodes, err := typedqueue.NewIndex(s, func(p *pod) ([]string, error) { return []string{p.Spec.NodeName}, nil })
				must(err)
				st.namespace = func(value string) int { return len(namespaces.Get(value)) }
				st.node = func(value string) int { return len(nodes.Get(value)) }
			}
			return st
		}},
		{"client-go", func(pods []*pod, indexed bool) stored {
			indexers := cache.Indexers{}
			if indexed {
				indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
				indexers["node"] = func(obj any) ([]string, error) { return []string{obj.(*pod).Spec.NodeName}, nil }
			}
			s := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
			keys := make([]string, len(pods))
			for i, p := range pods {
				keys[i] = p.Namespace + "/" + p.Name
			}
			by := func(index string) func(value string) int {
				return func(value string) int {
					found, err := s.ByIndex(index, value)
					must(err)
					return len(found)
				}
			}
			return stored{
				add:       func(p *pod) { must(s.Add(p)) },
				update:    func(p *pod) { must(s.Update(p)) },
				remove:    func(p *pod) { must(s.Delete(p)) },
				get:       func(p *pod) { _, _, err := s.Get(p); must(err) },
				getByKey:  func(i int) { _, _, err := s.GetByKey(keys[i]); must(err) },
				list:      func() int { return len(s.List()) },
				namespace: by(cache.NamespaceIndex),
				node:      by("node"),
			}
		}},
	}
}

// What a store holds when work begins, and how long it lasts.
const (
	kept   = iota // all pods; one store for everything
	filled        // all pods; a new store each time
	empty         // nothing; a new store each time
)

// stores is a workload of 10,000 pods and a store. work is done so many times in a round
// as laps says, and returns what it is counted as.
func stores(name string, laps int, indexed bool, state int, work func(s stored, pods []*pod) int) workload {
	pods := shared(pods)
	wl := workload{name: name, size: 10_000}
	for _, m := range storeMakers() {
		wl.contestants = append(wl.contestants, contestant{m.name, func(tb testing.TB, size int) round {
			pods := pods(size)
			make := func() stored {
				s := m.make(pods, indexed)
				if state != empty {
					addAll(s, pods)
				}
				return s
			}
			if state == kept {
				s := make()
				return func(w *watch) {
					n := 0
					w.start()
					for range laps {
						n += work(s, pods)
					}
					w.stop(n)
				}
			}
			return func(w *watch) {
				for range laps {
					s := make()
					w.start()
					n := work(s, pods)
					w.stop(n)
				}
			}
		}})
	}
	return wl
}

func addAll(s stored, pods []*pod) int {
	for _, p := range pods {
		s.add(p)
	}
	return len(pods)
}

// BenchmarkStoreAdd is Add of 10,000 pods to a new store.
func BenchmarkStoreAdd(b *testing.B) { benchmark(b, storeAdds()) }

func storeAdds() []workload {
	return []workload{
		stores("indexes=0", 3, false, empty, addAll),
		stores("indexes=2", 3, true, empty, addAll),
	}
}

// BenchmarkStoreUpdate is Update of 10,000 stored pods, to a version that is on another
// node for every other pod, and back.
func BenchmarkStoreUpdate(b *testing.B) { benchmark(b, storeUpdates()) }

func storeUpdates() []workload {
	versions := shared(func(n int) []*pod {
		list := pods(n)
		for i, p := range list {
			if i%2 == 0 {
				p.Spec.NodeName += "0"
			}
		}
		return list
	})
	return []workload{stores("indexes=2", 2, true, kept, func(s stored, pods []*pod) int {
		for _, list := range [][]*pod{versions(len(pods)), pods} {
			for _, p := range list {
				s.update(p)
			}
		}
		return 2 * len(pods)
	})}
}

// BenchmarkStoreGet is Get by object of each of 10,000 pods.
func BenchmarkStoreGet(b *testing.B) { benchmark(b, storeGets()) }

func storeGets() []workload {
	return []workload{stores("by=object", 5, false, kept, func(s stored, pods []*pod) int {
		for _, p := range pods {
			s.get(p)
		}
		return len(pods)
	})}
}

// BenchmarkStoreGetByKey is Get by key of each of 10,000 pods. The key is equal to the one
// in the store, but elsewhere in memory.
func BenchmarkStoreGetByKey(b *testing.B) { benchmark(b, storeGetsByKey()) }

func storeGetsByKey() []workload {
	return []workload{stores("by=key", 10, false, kept, func(s stored, pods []*pod) int {
		for i := range pods {
			s.getByKey(i)
		}
		return len(pods)
	})}
}

// BenchmarkStoreList lists 10,000 pods. An item is a pod listed.
func BenchmarkStoreList(b *testing.B) { benchmark(b, storeLists()) }

func storeLists() []workload {
	return []workload{stores("pods=10000", 50, false, kept, func(s stored, _ []*pod) int { return s.list() })}
}

// BenchmarkStoreByIndex lists the pods of each node, 100 each, and of each namespace,
// 1,000 each. An item is a pod listed.
func BenchmarkStoreByIndex(b *testing.B) { benchmark(b, storesByIndex()) }

func storesByIndex() []workload {
	return []workload{
		stores("index=node", 10, true, kept, func(s stored, _ []*pod) (n int) {
			for i := range 100 {
				n += s.node(fmt.Sprintf("node-%d", i))
			}
			return n
		}),
		stores("index=namespace", 10, true, kept, func(s stored, _ []*pod) (n int) {
			for i := range 10 {
				n += s.namespace(fmt.Sprintf("ns-%d", i))
			}
			return n
		}),
	}
}

// BenchmarkStoreDelete is Delete of each of 10,000 pods, until the store is empty.
func BenchmarkStoreDelete(b *testing.B) { benchmark(b, storeDeletes()) }

func storeDeletes() []workload {
	return []workload{stores("indexes=2", 3, true, filled, func(s stored, pods []*pod) int {
		for _, p := range pods {
			s.remove(p)
		}
		return len(pods)
	})}
}
