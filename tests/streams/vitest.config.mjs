// A long poll waits 20 seconds.
export default { test: { testTimeout: 40000 } };
