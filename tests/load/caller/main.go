// A client as kube-scheduler's extender client is one: net/http, a certificate read again at each handshake, a POST that is
// never sent twice. It calls until its time is over and prints what came of it.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

type outcome struct {
	Calls       int            `json:"calls"`
	Connections int            `json:"connections"`
	Failed      map[string]int `json:"failed"`
}

func main() {
	url := flag.String("url", "", "where to POST")
	body := flag.String("body", "", "file with the request")
	want := flag.String("want", "", "what an answer must contain")
	ca := flag.String("ca", "", "authority of the server")
	cert := flag.String("cert", "", "client certificate")
	key := flag.String("key", "", "its key")
	workers := flag.Int("workers", 4, "calls at once; every other worker opens a connection for each call")
	seconds := flag.Float64("seconds", 10, "how long")
	pause := flag.Duration("pause", 5*time.Millisecond, "between two calls of a worker")
	flag.Parse()

	authority, err := os.ReadFile(*ca)
	fatal(err)
	request, err := os.ReadFile(*body)
	fatal(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		fatal(fmt.Errorf("%s: no certificate in it", *ca))
	}

	found := outcome{Failed: map[string]int{}}
	var mutex sync.Mutex
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mutex.Lock()
		found.Connections++
		mutex.Unlock()
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil { // read between two halves of a change
			pair, err = tls.LoadX509KeyPair(*cert, *key)
		}
		return &pair, err
	}
	until := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	var group sync.WaitGroup
	for number := 0; number < *workers; number++ {
		client := &http.Client{
			Timeout: 5 * time.Second,
			Transport: &http.Transport{
				TLSClientConfig:   &tls.Config{RootCAs: pool, GetClientCertificate: load, MinVersion: tls.VersionTLS12},
				DisableKeepAlives: number%2 == 1,
			},
		}
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(until) {
				failure := call(client, *url, request, *want)
				mutex.Lock()
				found.Calls++
				if failure != "" {
					found.Failed[failure]++
				}
				mutex.Unlock()
				time.Sleep(*pause)
			}
		}()
	}
	group.Wait()
	fatal(json.NewEncoder(os.Stdout).Encode(found))
}

func call(client *http.Client, url string, request []byte, want string) string {
	answer, err := client.Post(url, "application/json", bytes.NewReader(request))
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	if answer.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(want)) {
		return fmt.Sprintf("%d: %.200s", answer.StatusCode, body)
	}
	return ""
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
