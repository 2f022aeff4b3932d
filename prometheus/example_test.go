package prometheus_test

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"example.com/typedqueue"
	queueprom "example.com/typedqueue/prometheus"
)

func ExampleCollector() {
	collector := queueprom.NewCollector()
	registry := prometheus.NewRegistry() // or prometheus.MustRegister, for the default one
	registry.MustRegister(collector)

	orders := collector.MustClaim("orders")
	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{Metrics: orders.Metrics()})
	queueprom.Watch(orders, q)

	q.AddAll("a", "b", "c")
	q.Get()
	show(registry, "workqueue_depth", "workqueue_adds_total")
	// Output:
	// # HELP workqueue_adds_total How often an item became ready, or was added while it was processed.
	// # TYPE workqueue_adds_total counter
	// workqueue_adds_total{name="orders"} 3
	// # HELP workqueue_depth Items that are ready to be handed out.
	// # TYPE workqueue_depth gauge
	// workqueue_depth{name="orders"} 2
}

// show prints the metrics of those names as a scrape would get them.
func show(g prometheus.Gatherer, names ...string) {
	families, err := g.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, name := range names {
			if f.GetName() == name {
				if _, err := expfmt.MetricFamilyToText(os.Stdout, f); err != nil {
					panic(err)
				}
			}
		}
	}
}

// Two queues of one name cannot be told apart, so the second does not get it.
func ExampleCollector_Claim() {
	collector := queueprom.NewCollector()
	first, _ := collector.Claim("orders")
	_, err := collector.Claim("orders")
	fmt.Println(err)

	first.Remove()
	_, err = collector.Claim("orders")
	fmt.Println(err)
	// Output:
	// typedqueue: name is claimed already: "orders"
	// <nil>
}
