// Shipping is the example of README.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"example.com/typedqueue"
	"example.com/typedqueue/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"127.0.0.1:2379"},
		DialKeepAliveTime:    10 * time.Second, // gRPC has no less
		DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	prefixes := etcd.Prefixes{Source: "/orders/", Effects: "/shipped/", Members: "/shippers/"}
	text := func(value []byte) (string, error) { return string(value), nil }
	c := etcd.NewController(client, prefixes, text, ship, etcd.Options{
		Run:     typedqueue.RunOptions[string]{Workers: 8},
		OnError: func(err error) { log.Print(err) },
	})
	log.Print(c.Run(ctx)) // context canceled, after an interrupt
}

// ship brings the effect of one order in line. An error here means: again, after a while.
func ship(ctx context.Context, task *etcd.Task[string]) error {
	if !task.Exists() { // it was deleted
		_, err := task.Commit(ctx, clientv3.OpDelete(task.EffectKey()))
		return err
	}
	shipped := fmt.Sprintf("%s, order of revision %d", task.Object.Value, task.Object.Revision)
	if string(task.Effect.Value) == shipped {
		return nil
	}
	_, err := task.Commit(ctx, clientv3.OpPut(task.EffectKey(), shipped))
	return err
}
