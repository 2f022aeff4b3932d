package page_test

import (
	"context"
	"log"
	"net/http"

	"example.com/typedqueue"
	"example.com/typedqueue/page"
)

func Example() {
	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{TrackTime: true}) // so that ages are known

	p := page.New(page.Options{Title: "Queues of my service"})
	if _, err := page.Watch(p, "orders", q); err != nil {
		log.Fatal(err)
	}
	go p.Record(context.Background()) // so that the charts begin now

	http.Handle("/debug/queues", p)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil)) // this machine only
}
