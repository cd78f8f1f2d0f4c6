package main

import (
	"errors"
	"net"
	"os"
)

// notify tells the service manager of a state, if it wants to be told: systemd
// names the socket in NOTIFY_SOCKET to a unit of Type=notify (sd_notify(3)).
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return errors.Join(err, conn.Close())
}
