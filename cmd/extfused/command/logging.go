package command

import (
	"log/syslog"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func parseLevel(s string) (zapcore.Level, error) {
	l, err := zapcore.ParseLevel(s)
	if err != nil || l > zapcore.ErrorLevel {
		return l, Exitf(ExitUsage, "--log-level %q: must be debug, info, warn or error", s)
	}
	return l, nil
}

// logger writes to the log file, or to stderr in the foreground, or to syslog
// in the background; where there is no syslog, nowhere.
func (o *mountCmdOptions) logger(background bool) (*zap.Logger, error) {
	level, err := parseLevel(o.logLevel)
	if err != nil {
		return nil, err
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	out, err := o.logOutput(background, &enc)
	if out == nil || err != nil {
		return zap.NewNop(), err
	}
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), out, level)), nil
}

func (o *mountCmdOptions) logOutput(background bool, enc *zapcore.EncoderConfig) (zapcore.WriteSyncer, error) {
	if o.logFile != "" {
		path, err := filepath.Abs(o.logFile)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			return nil, Exitf(ExitFailure, "log file: %w", err)
		}
		return zapcore.Lock(f), nil
	}
	if !background {
		return zapcore.Lock(os.Stderr), nil
	}
	w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_INFO, "extfused")
	if err != nil {
		return nil, nil
	}
	enc.TimeKey = "" // syslog has its own
	return zapcore.AddSync(w), nil
}
